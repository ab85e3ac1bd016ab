"""The commit gate between an Iceberg operation and the catalog.

Iceberg calls `commit(base, metadata)` for every try, after it has applied its changes to a
fresh base and before the catalog swaps. The gate reads the change back from the manifests that Iceberg has
just written and checks it by the rules of `core.commits.gate_rules`. A change that breaks a rule never reaches the
catalog.

An exception raised here arrives in Java as a Py4JException. Iceberg does not retry after it and deletes no
file because of it. The gate keeps the exception that it or the catalog raised, for the caller.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from iceberg_maint.core.commits.change import (
    ROW_IDS_SINCE,
    Change,
    Lineage,
    MetadataReader,
    Since,
    TableVersion,
    Violation,
)
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.commits.manifest_diff import read_file_change
from iceberg_maint.core.commits.table_rules import check_publishes
from iceberg_maint.core.model.other_writers import STAGED_PROPERTY, PendingPublish, pending_publishes_of
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import Manifest, made_by
from iceberg_maint.engines.spark.commit.table_operations import (
    GuardedTableOperations,
    commit_with_requirements,
)
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.functions import OBJECT, STRING, JavaFunctions
from iceberg_maint.engines.spark.scan.scan import metadata_specs
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports.engine import CommitContext

Check = Callable[[Intent, Change], tuple[Violation, ...]]

_ADDS = ("added-delete-files", "added-position-delete-files", "added-equality-delete-files", "added-dvs")
_REMOVES = tuple(key.replace("added", "removed") for key in _ADDS)


class GateRefusedError(Exception):
    """The gate refused a commit. The reasons are the gate's violations."""


class BaseMovedError(Exception):
    """The metadata that a commit builds on is no longer the table's current metadata. Its swap would fail."""


Inspect = Callable[[Any, Any], tuple[Violation, ...]]
"""(Java `TableMetadata` that a commit builds on, the new `TableMetadata`) → the rules that the commit breaks.
Raises BaseMovedError."""


class Gate:
    """Checks the commit of a table's operations. A gate serves one commit of one operation object.

    `requires_refs`: a REST catalog must refuse the commit if any
    ref of the base has moved or gone. The order at the swap is: rules, fence, record, swap.
    After the commit, `violations` are the broken rules, `moved` says whether another commit came before the
    check of the rules, `error` is the exception that was raised in the gate, `tried` says whether the swap was
    recorded and may have happened, `base_snapshot_id` is the head of the base metadata, and `window_seconds` is the
    time from `begin` to the swap, in which any other commit wins.
    """

    def __init__(
        self,
        bridge: Bridge,
        operations: Any,
        inspect: Inspect,
        context: CommitContext,
        *,
        requires_refs: bool = False,
    ) -> None:
        self._bridge = bridge
        self._delegate = operations
        self._inspect = inspect
        self._context = context
        self._requires_refs = requires_refs
        self._used = False
        self._began_seconds = 0.0
        self.window_seconds = 0.0
        self.violations: tuple[Violation, ...] = ()
        self.moved = False
        self.error: BaseException | None = None
        self.tried = False
        self.base_snapshot_id: int | None = None

    def table(self, name: str) -> Any:
        """A Java `Table` whose commits pass this gate."""
        return self._bridge.iceberg.BaseTable(self._guarded_operations.java, name)

    def rehearse(self, operation: Any) -> None:
        """Applies an operation and checks the rules, without a commit. The operation and the metadata reader keep
        what they have read and written, so that the commit reads only what comes after this. Broken rules are left to
        the commit. Raises what Iceberg's validation raises."""
        snapshot = operation.apply()
        base = self._delegate.current()
        builder = self._bridge.iceberg.TableMetadata.buildFrom(base)
        self._inspect(base, builder.setBranchSnapshot(snapshot, "main").build())

    def begin(self) -> None:
        """The operation loads its base after this call."""
        self._began_seconds = time.monotonic()

    def showing(self, properties: Mapping[str, str]) -> AbstractContextManager[None]:
        """Inside the block the table has these properties too, unless it sets them. An operation that is
        created in the block reads them."""
        return self._guarded_operations.showing(properties)

    @cached_property
    def _guarded_operations(self) -> GuardedTableOperations:
        return GuardedTableOperations(self._bridge, self, self._delegate)

    # methods of TableOperations that the gate answers

    def requireStrictCleanup(self) -> bool:
        """True: Iceberg deletes files only after a failure that proves that nothing was committed."""
        return True

    def commit(self, base: Any, metadata: Any) -> None:
        """Checks the change, records the try and swaps. Raises what refuses or fails the commit."""
        try:
            self._commit(base, metadata)
        except Exception as why:
            self.error = why
            raise
        except BaseException as why:
            # py4j returns only an Exception to Java. After another BaseException Java would wait forever.
            self.error = why
            raise GateRefusedError("interrupted") from why

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)

    def _commit(self, base: Any, metadata: Any) -> None:
        if self._used:
            raise GateRefusedError("an operation commits once; a retry needs a new operation")
        self._used = True
        self.base_snapshot_id = int(base.currentSnapshot().snapshotId())
        try:
            self.violations = self._inspect(base, metadata)
        except BaseMovedError:
            self.moved = True
            raise
        if self.violations:
            raise GateRefusedError("; ".join(f"{v.rule}: {v.fact}" for v in self.violations))
        if not self._context.lease_is_held():
            raise FenceLostError("the lease was lost before the commit; nothing was committed.")
        self._context.record_try(self.base_snapshot_id, str(base.metadataFileLocation()))
        self.tried = True
        self.window_seconds = time.monotonic() - self._began_seconds if self._began_seconds else 0.0
        commit_with_requirements(self._bridge, self._delegate, base, metadata, all_refs=self._requires_refs)


def inspecting_files(
    bridge: Bridge, intent: Intent, reader: MetadataReader, context: CommitContext, check: Check
) -> Inspect:
    """The inspection of a commit that changes live files: by the batch's intent."""

    def inspect(base: Any, metadata: Any) -> tuple[Violation, ...]:
        waiting = check_publishes(context.publish_wait(pending_publishes(bridge, base)))
        return waiting or check(
            intent, read_change(bridge, base, metadata, intent, reader, context.installation)
        )

    return inspect


def pending_publishes(bridge: Bridge, base: Any) -> tuple[PendingPublish, ...]:
    """What a commit on a Java `TableMetadata` would keep from being published. The metadata cross as JSON only if
    there is a second ref or a staged snapshot."""
    functions = bridge.once(JavaFunctions)
    # Java: snapshot -> Objects.toString(snapshot.summary()).contains("<property>=")
    summary = functions.method("org.apache.iceberg.Snapshot", "summary", "java.util.Map")
    to_string = functions.static_method("java.util.Objects", "toString", STRING, OBJECT)
    written = functions.compose(summary, to_string.asType(functions.type_of(STRING, "java.util.Map")))
    contains = functions.method(STRING, "contains", "boolean", "java.lang.CharSequence")
    contains = functions.bind_arguments(contains, 1, f"{STAGED_PROPERTY}=")
    is_staged = functions.predicate(functions.compose(written, contains))
    if base.refs().size() <= 1 and not functions.stream(base.snapshots()).anyMatch(is_staged):
        return ()
    return pending_publishes_of(json.loads(str(bridge.iceberg.TableMetadataParser.toJson(base))))


def read_change(
    bridge: Bridge, base: Any, new: Any, intent: Intent, reader: MetadataReader, installation: str = ""
) -> Change:
    """The change that a commit of `installation` from metadata `base` to `new` makes. Raises
    UnreadableTableError."""
    specs = metadata_specs(bridge, base)
    before = table_version(base, specs, reader)
    if not base.specs().equals(new.specs()):
        specs = metadata_specs(bridge, new)
    after = table_version(new, specs, reader)
    pinned = _pinned_manifests(base, before, intent, reader)
    return Change(
        base=before,
        new=after,
        lineage=lineage(bridge, base, before.manifests, intent.snapshot_id, installation),
        files=read_file_change(intent, before, after, pinned, reader.manifest),
    )


def _pinned_manifests(
    base: Any, before: TableVersion, intent: Intent, reader: MetadataReader
) -> Sequence[Manifest] | None:
    if intent.snapshot_id == before.snapshot_id:
        return before.manifests
    snapshot = base.snapshot(intent.snapshot_id)
    return None if snapshot is None else reader.manifest_list(str(snapshot.manifestListLocation()))


def table_version(metadata: Any, specs: Mapping[int, PartitionSpec], reader: MetadataReader) -> TableVersion:
    """The head of a Java `TableMetadata` as values. `specs` are all specs of the table."""
    snapshot = metadata.currentSnapshot()
    parent = snapshot.parentId()
    return TableVersion(
        table_uuid=str(metadata.uuid()),
        format_version=int(metadata.formatVersion()),
        schema_id=int(metadata.currentSchemaId()),
        specs=specs,
        snapshot_id=int(snapshot.snapshotId()),
        parent_id=None if parent is None else int(parent),
        sequence_number=int(snapshot.sequenceNumber()),
        manifests=tuple(reader.manifest_list(str(snapshot.manifestListLocation()))),
        first_row_id=_row_id(snapshot.firstRowId()),
        next_row_id=int(metadata.nextRowId()) if int(metadata.formatVersion()) >= ROW_IDS_SINCE else None,
    )


def _row_id(value: Any) -> int | None:
    return None if value is None else int(value)


def lineage(
    bridge: Bridge, base: Any, manifests: Iterable[Manifest], pinned_id: int, installation: str = ""
) -> Lineage:
    """The ancestors of a Java `TableMetadata`'s head, newest first, up to the pinned snapshot. `manifests`
    are the head's. Commits of another installation than `installation` are not ours."""
    pinned = base.snapshot(pinned_id)
    pinned_exists = pinned is not None
    pinned_row_id = _row_id(pinned.firstRowId()) if pinned_exists else None
    # Manifests show the added delete files of a writer that writes no summary.
    adding_deletes = {m.added_snapshot_id for m in manifests if m.is_deletes and m.added_files != 0}
    since: dict[int, Since] = {}
    snapshot = base.currentSnapshot()
    # In broken metadata a snapshot can be its own ancestor.
    while snapshot is not None and int(snapshot.snapshotId()) not in since:
        facts = json.loads(bridge.iceberg.SnapshotParser.toJson(snapshot))
        if facts["snapshot-id"] == pinned_id:
            return Lineage(pinned_exists, True, tuple(since.values()), pinned_row_id)
        since[facts["snapshot-id"]] = _since(facts, adding_deletes, installation)
        parent = facts.get("parent-snapshot-id")
        snapshot = base.snapshot(parent) if parent is not None else None
    return Lineage(pinned_exists, False, tuple(since.values()), pinned_row_id)


def _since(facts: dict[str, Any], adding_deletes: set[int], installation: str) -> Since:
    summary = facts.get("summary", {})
    return Since(
        snapshot_id=facts["snapshot-id"],
        operation=summary.get("operation", ""),
        adds_deletes=facts["snapshot-id"] in adding_deletes or _any(summary, _ADDS),
        removes_deletes=_any(summary, _REMOVES),
        ours=made_by(summary, installation),
    )


def _any(summary: dict[str, str], keys: tuple[str, ...]) -> bool:
    return any(int(summary.get(key, 0)) > 0 for key in keys)
