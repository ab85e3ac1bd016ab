"""The regressions of all sections."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.applying import APPLYING
from iceberg_maint_tests.qualification.regressions.committing import COMMITTING
from iceberg_maint_tests.qualification.regressions.keys_and_secrets import KEYS_AND_SECRETS
from iceberg_maint_tests.qualification.regressions.removing import REMOVING
from iceberg_maint_tests.qualification.regressions.rewriting import REWRITING
from iceberg_maint_tests.qualification.regressions.scheduling import SCHEDULING

INVENTORY = {
    "Rewrites": REWRITING,
    "Deletes": APPLYING,
    "Commits": COMMITTING,
    "Removal of files and snapshots": REMOVING,
    "Budget of the fleet": SCHEDULING,
    "Partition keys, names and secrets": KEYS_AND_SECRETS,
}
"""heading on docs/project/regressions.md -> its regressions."""
