"""Adopt: files that a process wrote and proved before it died are committed, not written again.

They are taken only while everything the batch stands on still holds, and pass what fresh files pass:
the proof is read from them anew, and they go through the gate under an attempt of their own.
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
from iceberg_maint.ports.ledger import Lease
from iceberg_maint.runner.runtime import Runtime

ADOPT_WITHIN_SECONDS = 12 * 3600
"""How long files may wait for it, from when the process that wrote them began. Half the age below which
nobody's orphan pass takes a file, ours (`ORPHAN_AGE_FLOOR_SECONDS`) and Iceberg's (24 hours): one that is
adopted is never about to be removed."""


def reusable_output(batch: Batch, policy: Policy, runtime: Runtime, lease: Lease) -> Written | None:
    """What an earlier process wrote for this very batch, if it can be committed as it is; else the
    batch is to be written. Raises StaleBatchError where the batch itself does not hold any more."""
    output = runtime.ledger.uncommitted_output(lease, batch.batch_id, ADOPT_WITHIN_SECONDS)
    # What is not there cannot be proved anew.
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
    except Exception:  # noqa: BLE001 - whatever is wrong with them, they can be written again
        return None


def _suffices(proof: Proof, batch: Batch, policy: Policy) -> bool:
    """Whether a proof says as much as the policy asks of this batch now."""
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
