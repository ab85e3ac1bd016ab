"""Reuse: commits files that a process wrote and proved before it died, and does not write them again.

The batch must still be valid. The files pass the same checks as new files: the engine reads them again for
the proof, and they go through the gate under an attempt of their own.
"""

from __future__ import annotations

from typing import assert_never

from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    RewriteDataFiles,
    RewritePositionDeleteFiles,
    file_work,
)
from iceberg_maint.core.policy.data import Policy, ProofLevel
from iceberg_maint.errors import FenceLostError, StaleBatchError
from iceberg_maint.ports.engine import Written
from iceberg_maint.ports.stored import Lease
from iceberg_maint.runner.runtime import Runtime

ADOPT_WITHIN_SECONDS = 12 * 3600
"""The greatest age of files to reuse, counted from the start of the attempt that wrote them. It is half the
least age of a file that an orphan pass removes, ours (`ORPHAN_AGE_FLOOR_SECONDS`) or Iceberg's (24 hours).
So no orphan pass removes a file that is being reused."""


def reusable_output(batch: Batch, policy: Policy, runtime: Runtime, lease: Lease) -> Written | None:
    """Returns the files that an earlier process wrote for this batch, if they can be committed. None if
    the batch must be written. Raises StaleBatchError if the batch is no longer valid."""
    output = runtime.ledger.uncommitted_output(lease, batch.batch_id, ADOPT_WITHIN_SECONDS)
    # Without files or a proof there is nothing to check again.
    if (
        output is None
        or not output.files
        or output.proof is None
        or not _suffices(output.proof, batch, policy)
    ):
        return None
    written = Written(output.files, output.proof, adopted=True)
    try:
        return written if runtime.engine().reuse_files(batch, written) else None
    except (FenceLostError, StaleBatchError):
        raise
    except Exception:  # noqa: BLE001 - the batch can be written again after any failure
        return None


def _suffices(proof: Proof, batch: Batch, policy: Policy) -> bool:
    """Whether a proof has the level that the policy requires for this batch now."""
    match work := file_work(batch.work):
        case RewriteDataFiles():
            required_level = policy.rewrite_data_files.proof
        case RewritePositionDeleteFiles():
            required_level = policy.rewrite_position_delete_files.proof
        case ConvertEqualityDeletes():
            required_level = ProofLevel.FULL
        case _:
            assert_never(work)
    return proof.equal and proof.level in (required_level.value, ProofLevel.FULL.value)
