"""What changed since a snapshot: an open batch is judged by it as by all live files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iceberg_maint.catalog import adapter
from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests import live_columns, live_files
from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.core.model.table_state import FileKind, LiveFile, Manifest, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import FileGroup, InputFile, PositionDeleteFile, RewriteDataFiles
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.loop.select_batches import Changes, still_valid
from iceberg_maint_tests.catalog.conftest import BY_REGION, EVENTS, SCHEMA, sql_properties
from iceberg_maint_tests.support.catalog.table_files import (
    ADDED,
    DELETED,
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    spec,
)
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds

POLICY = RewriteDataFilesPolicy()
UNPARTITIONED = spec(1)
KEYS = ("region=eu", "region=us")
REGIONS = ("eu", "us")


class ColdCatalog(PyIcebergCatalog):
    """Reads all live files."""

    def changed_files(self, *_: Any) -> None:
        return None


@dataclass
class Lake:
    """A table of metadata only, whose manifests are written once and then listed by every later snapshot."""

    folder: Path
    table: TableFiles = field(init=False)
    listed: dict[str, tuple[dict[str, Any], tuple[File, ...], Any, bool]] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.table = TableFiles(self.folder / "t", SCHEMA, [BY_REGION, UNPARTITIONED])

    def add(self, *files: File, by: Any = BY_REGION, deletes: bool = False) -> None:
        """Commits a new manifest beside the others."""
        self.number += 1
        self._write(files, by, deletes)
        self._commit()

    def rewrite(self, *names: str, without: str | None = None) -> None:
        """Commits one manifest in place of these, with their live entries but one."""
        self.number += 1
        entries = []
        _, _, by, deletes = self.listed[names[0]]
        for name in names:
            row, files, _, _ = self.listed.pop(name)
            for file in files:
                if file.status != DELETED:
                    number = file.sequence_number or row["sequence_number"]
                    status = DELETED if file.path == without else EXISTING
                    entries.append(replace(file, sequence_number=number, status=status, snapshot_id=11))
        self._write(tuple(entries), by, deletes)
        self._commit()

    def _write(self, files: tuple[File, ...], by: Any, deletes: bool) -> None:
        name = f"m{self.number}.avro"
        manifest = ManifestFile(files, by, self.number, self.number + 10, is_deletes=deletes)
        self.listed[name] = self.table.write_manifest(manifest, name), files, by, deletes

    def _commit(self) -> None:
        rows = iter([row for row, *_ in self.listed.values()])
        self.table._write_manifest = lambda _: next(rows)  # type: ignore[method-assign]
        manifests = [cast("ManifestFile", None)] * len(self.listed)
        of = self.number
        self.table.commit(manifests, snapshot_id=of + 10, sequence_number=of, timestamp_ms=of)
        self.table.register(self.folder / "catalog.db", "db.events")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the manifests that are read."""
    names: list[str] = []
    read = live_files.read_live_entries

    def counted(io: Any, manifest: Manifest, *more: Any) -> Any:
        names.append(manifest.path.rsplit("/", 1)[1])
        return read(io, manifest, *more)

    for module in (live_columns, live_files, adapter):
        monkeypatch.setattr(module, "read_live_entries", counted)
    return names


def batch_of(state: TableState, key: str, files: tuple[LiveFile, ...]) -> Batch:
    """A rewrite of the data files of one partition, with the position deletes that apply to them."""
    deletes = [f for f in files if f.kind is FileKind.POSITION_DELETES and f.partition == key]
    applied = tuple(d.path for d in deletes)
    assert state.snapshot is not None
    data = [f for f in files if f.kind is FileKind.DATA]
    inputs = (InputFile(f.path, f.size_bytes, f.record_count, f.data_sequence_number, applied) for f in data)
    return Batch(
        batch_id=f"{key} at {state.snapshot.snapshot_id}",
        table=str(EVENTS),
        table_uuid=state.uuid,
        format_version=2,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=0,
        target_file_size_bytes=1,
        work=RewriteDataFiles(
            (FileGroup(key, 0, 0, tuple(inputs), 1),),
            applied_deletes=tuple(
                PositionDeleteFile(
                    d.path, d.spec_id, d.partition, d.data_sequence_number, d.record_count, d.size_bytes
                )
                for d in deletes
            ),
        ),
    )


def batches_at_head(catalog: PyIcebergCatalog) -> Iterator[Batch]:
    state = catalog.pin(EVENTS)
    for key in KEYS:
        yield batch_of(state, key, catalog.live_files(state, [key]))


def changes_of(catalog: PyIcebergCatalog, batches: list[Batch]) -> Changes:
    return Changes(catalog.pin(EVENTS), Catalogs({EVENTS.catalog: catalog}, calls=lambda: 0), batches)


def eu(path: str, **facts: Any) -> File:
    return File(path, ("eu",), **facts)


def us(path: str, **facts: Any) -> File:
    return File(path, ("us",), **facts)


def test_hundred_open_batches_read_the_changed_manifests_once(
    lake: Lake, catalog: PyIcebergCatalog, opened: list[str]
) -> None:
    lake.add(*(File(f"f{n}", (f"r{n}",)) for n in range(100)))
    lake.add(*(File(f"g{n}", (f"r{n}",)) for n in range(100)))
    state = catalog.pin(EVENTS)
    batches = [
        batch_of(state, key, catalog.live_files(state, [key])) for key in (f"region=r{n}" for n in range(100))
    ]
    lake.add(File("h0", ("r0",)))
    lake.rewrite("m2.avro", without="g7")
    opened.clear()
    changes = changes_of(catalog, batches)
    assert [b.partitions for b in batches if not still_valid(b, changes)] == [("region=r7",)]
    assert sorted(opened) == ["m2.avro", "m3.avro", "m4.avro"]


def test_changed_files_of_a_snapshot_that_cannot_be_read_are_not_known(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    lake.add(eu("a"))
    batches = list(batches_at_head(catalog))
    lake.add(eu("b"))
    state = catalog.pin(EVENTS)
    assert catalog.changed_files(state, 999, KEYS) is None
    (lake.folder / "t" / "metadata" / "snap-11.avro").unlink()
    assert catalog.changed_files(state, 11, KEYS) is None
    assert still_valid(batches[0], changes_of(catalog, batches))


def test_manifest_that_got_row_ids_is_changed(lake: Lake, catalog: PyIcebergCatalog) -> None:
    """An upgrade to format v3 gives the rows of a listed manifest ids, and does not write it again."""
    lake.add(eu("a"))
    lake.add(eu("b"))
    state = catalog.pin(EVENTS)
    first, second = state.manifests
    given_ids = replace(state, manifests=(replace(first, first_row_id=0), second))
    changed = catalog.changed_files(given_ids, 12, KEYS)
    assert changed is not None
    assert ([f.path for f in changed.removed], [f.path for f in changed.added]) == (["a"], ["a"])


def test_batch_without_row_ids_is_not_valid(lake: Lake, catalog: PyIcebergCatalog) -> None:
    lake.add(eu("a"))
    stored = replace(next(batches_at_head(catalog)), format_version=3)
    lake.add(eu("b"))
    changes = changes_of(catalog, [stored])
    changes.state = replace(changes.state, format_version=3)
    assert not still_valid(stored, changes)


def test_open_batch_with_a_planned_file_listed_twice_is_not_valid(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    """The manifest of the plan still lists the file, and a new one lists the same path."""
    lake.add(eu("a"), us("b"))
    batches = list(batches_at_head(catalog))
    lake.add(eu("a"))
    changes = changes_of(catalog, batches)
    assert [still_valid(batch, changes) for batch in batches] == [False, True]


def test_open_batch_with_a_planned_file_registered_again_is_not_valid(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    lake.add(eu("a"), us("b"))
    batches = list(batches_at_head(catalog))
    lake.rewrite("m1.avro", without="a")
    lake.add(eu("a"))
    changes = changes_of(catalog, batches)
    assert [still_valid(batch, changes) for batch in batches] == [False, True]


def test_newer_equality_delete_of_an_unpartitioned_spec_makes_every_batch_stale(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    lake.add(eu("a"), us("b"))
    batches = list(batches_at_head(catalog))
    lake.add(File("d", (), content=2, equality_ids=(1,)), by=UNPARTITIONED, deletes=True)
    changes = changes_of(catalog, batches)
    assert [still_valid(batch, changes) for batch in batches] == [False, False]


def test_stored_batch_with_other_facts_than_the_moved_files_is_not_valid(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    lake.add(eu("a", size_bytes=7))
    (batch, _) = batches_at_head(catalog)
    lake.rewrite("m1.avro")
    changes = changes_of(catalog, [batch])
    assert still_valid(batch, changes)
    (group,) = batch.groups
    other = replace(group, files=tuple(replace(f, size_bytes=8) for f in group.files))
    assert not still_valid(replace(batch, work=RewriteDataFiles((other,))), changes)


def test_find_live_since_a_snapshot_reads_no_manifest_that_only_its_ancestors_list(
    lake: Lake, catalog: PyIcebergCatalog, opened: list[str]
) -> None:
    lake.add(eu("a"))
    lake.rewrite("m1.avro")
    assert catalog.find_live(catalog.pin(EVENTS), ["never"], since=12) == frozenset()
    assert opened == []


def test_find_live_since_a_snapshot_reads_newer_manifests_only(
    lake: Lake, catalog: PyIcebergCatalog, opened: list[str]
) -> None:
    for path in ("a", "b", "c", "d"):
        lake.add(eu(path))
    state = catalog.pin(EVENTS)
    assert catalog.find_live(state, ["c", "never"], since=12) == {"c"}
    assert sorted(opened) == ["m3.avro", "m4.avro"]
    opened.clear()
    assert catalog.find_live(state, ["never"], since=14) == frozenset()
    assert opened == []
    assert catalog.find_live(state, ["a", "never"], since=999) == {"a"}
    assert len(opened) == 4


def test_find_live_since_a_snapshot_reads_branches_of_its_ancestors(
    lake: Lake, catalog: PyIcebergCatalog
) -> None:
    """Main was rolled back behind the pinned snapshot, and the files came with another child of its parent."""
    for path in ("a", "b", "c"):
        lake.add(eu(path))
    state = catalog.pin(EVENTS)
    first, second, third = state.snapshots
    sibling = replace(third, parent_id=first.snapshot_id)
    state = replace(state, snapshot=sibling, snapshots=(first, second, sibling))
    assert catalog.find_live(state, ["c"], since=second.snapshot_id) == {"c"}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Commits: new files, deletes, files that go or come again, manifests that are rewritten."""
    steps: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("data", "data", "deletes", "remove", "again", "regroup", "twice")))
        steps.append((kind, draw(st.integers(0, 1 << 16))))
    return steps


def _apply(lake: Lake, kind: str, seed: int, gone: list[File]) -> None:
    region, number = (REGIONS[seed % 2],), lake.number + 1
    of_data = [n for n, (*_, deletes) in lake.listed.items() if not deletes]
    live_data = [(n, f) for n in of_data for f in lake.listed[n][1] if f.status != DELETED]
    if kind == "data" or not live_data:
        lake.add(File(f"f{number}", region), File(f"g{number}", (REGIONS[seed // 2 % 2],)))
    elif kind == "deletes":
        content, everywhere = 1 + seed // 2 % 2, seed % 6 == 0
        by = UNPARTITIONED if everywhere else BY_REGION
        lake.add(
            File(
                f"d{number}",
                () if everywhere else region,
                content=content,
                equality_ids=(1,) if content == 2 else None,
            ),
            by=by,
            deletes=True,
        )
    elif kind == "remove":
        name, file = live_data[seed % len(live_data)]
        gone.append(replace(file, status=ADDED, sequence_number=None, snapshot_id=None))
        lake.rewrite(name, without=file.path)
    elif kind == "again" and gone:
        file = gone.pop(seed % len(gone))
        kept = (None, 1)[seed // 3 % 2]
        lake.add(replace(file, sequence_number=kept, size_bytes=file.size_bytes + seed % 3 // 2))
    elif kind == "twice":
        _, file = live_data[seed % len(live_data)]
        lake.add(replace(file, status=ADDED))
    else:
        deletes = bool(seed % 2) and len(lake.listed) > len(of_data)
        of_kind = [n for n, (*_, of, is_deletes) in lake.listed.items() if is_deletes is deletes]
        first = lake.listed[of_kind[0]][2]
        lake.rewrite(*(n for n in of_kind if lake.listed[n][2] is first))


def _judged(batch: Batch, changes: Changes) -> bool | str:
    """Whether the batch is valid, or why the table is refused."""
    try:
        return still_valid(batch, changes)
    except RefusedError as error:
        return str(error)


@given(history=histories())
@settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_open_batch_is_judged_by_the_changes_as_by_all_live_files(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any]]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("history"))
    properties = sql_properties(lake.folder)
    cold = ColdCatalog("lake", properties)
    warm = PyIcebergCatalog("lake", properties, ManifestMemo(lake.folder / "memo.db", min_files=1))
    batches: list[Batch] = []
    gone: list[File] = []
    for kind, seed in (("data", 0), *history):
        _apply(lake, kind, seed, gone)
        by_all, by_changes = changes_of(cold, batches), changes_of(warm, batches)
        for batch in batches:
            expected = _judged(batch, by_all)
            if isinstance(expected, bool):
                assert still_valid(batch, by_changes) == expected, (batch.batch_id, kind)
                continue
            # A file of the batch is listed twice, or another one that the batch does not touch.
            planned = {f.path for g in batch.groups for f in g.files}
            assert not still_valid(batch, by_changes) or not any(path in expected for path in planned)
        warm.measure(warm.pin(EVENTS), POLICY)
        try:
            batches += batches_at_head(cold)
        except RefusedError:
            return
