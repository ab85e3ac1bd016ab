"""Releases of expiries: stored before the commit, and taken by the same run after it.

The expiry stands, whatever happens to its files: what is not removed here waits for the next expiry or orphan
pass.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.released_files import release_of
from iceberg_maint.errors import FenceLostError, IcebergMaintError
from iceberg_maint.ports.storage import ReleasedWork
from iceberg_maint.ports.stored import Attempt, Lease
from iceberg_maint.runner.attempt_result import AttemptResult, one_line, pin_same
from iceberg_maint.runner.clocks import checked_clocks
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)


def record_release(work: ExpireSnapshots, batch: Batch, policy: Policy, runtime: Runtime) -> None:
    """Stores which snapshots the expiry is about to remove. Without it, their files wait for an orphan pass."""
    if not policy.remove_orphan_files.enabled or not work.snapshots:
        return
    try:
        state = pin_same(batch, runtime)
        if state is None:
            return
        catalog = runtime.catalog_of(state.table)
        document = catalog.metadata_document(state.table, state.metadata_location)
        if not catalog.checks_commit_base and not document.get("metadata-log"):
            # Nothing will show which refs the commit removes. Without a release an orphan pass takes the files.
            return
        release = release_of(batch.batch_id, state, document, work.snapshots)
        runtime.orphan_files(state.table).record_release(state, policy.remove_orphan_files, release)
    except Exception as why:  # noqa: BLE001 - the expiry does not depend on it
        _log.warning("%s: %s", batch.table, runtime.masked(_waits(why)))


def remove_released(
    ended: AttemptResult, batch: Batch, policy: Policy, runtime: Runtime, lease: Lease, attempt: Attempt
) -> AttemptResult:
    """Removes the files that a completed expiry released, and adds their numbers to its result. Raises
    FenceLostError."""
    if ended.outcome is not OutcomeStatus.IMPROVED or not policy.remove_orphan_files.enabled:
        return ended
    try:
        state = pin_same(batch, runtime)
        if state is None or not takes_released(state, runtime, attempt.attempt_id):
            return ended
        open_attempts = runtime.ledger.open_attempts(state.uuid)
        done = runtime.orphan_files(state.table).remove_released(
            state,
            policy.remove_orphan_files,
            in_flight=frozenset(f.path for a in open_attempts for f in a.files or ()),
            holds=lambda: is_held(state, runtime, lease),
        )
    except FenceLostError:
        raise
    except Exception as why:  # noqa: BLE001 - the expiry is committed, whatever happens to its files
        done = ReleasedWork(stopped=why)
    message = "" if done.stopped is None else _waits(done.stopped)
    return replace(ended, message=message, counts={**ended.counts, **released_counts(done)})


def takes_released(state: TableState, runtime: Runtime, own_attempt_id: str | None = None) -> bool:
    """Whether the files of expiries may be removed: no expiry is unsettled or held for a person. What went with such
    an expiry may be wanted back."""
    expiry = Operation.EXPIRE_SNAPSHOTS
    if runtime.ledger.history(state.uuid, str(state.table), expiry).of(WHOLE_TABLE).quarantined:
        return False
    return not any(
        a.operation == expiry and a.attempt_id != own_attempt_id
        for a in runtime.ledger.open_attempts(state.uuid)
    )


def is_held(state: TableState, runtime: Runtime, lease: Lease) -> bool:
    """Whether the lease is still ours, asked before a file goes. Raises RefusedError ICM-115: a clock may
    have been set since the work began."""
    checked_clocks(runtime, state, store=False)
    return runtime.ledger.holds(lease)


def released_counts(done: ReleasedWork) -> Mapping[str, int]:
    """The numbers of released files and bytes, by name."""
    return {
        "released_files": done.released_files,
        "released_bytes": done.released_bytes,
        "released_deleted_files": done.deleted_files,
        "released_deleted_bytes": done.deleted_bytes,
        "released_held_files": done.held_files,
        "released_held_bytes": done.held_bytes,
    }


def _waits(why: Exception) -> str:
    text = str(why) if isinstance(why, IcebergMaintError) else one_line(why)
    return f"the files that the expiry released wait for the next one or an orphan pass: {text}"
