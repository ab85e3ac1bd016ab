"""All known regressions."""

from __future__ import annotations

from iceberg_maint_tests.regressions.applying import APPLYING
from iceberg_maint_tests.regressions.committing import COMMITTING
from iceberg_maint_tests.regressions.removing import REMOVING
from iceberg_maint_tests.regressions.rewriting import REWRITING
from iceberg_maint_tests.regressions.telling import TELLING

INVENTORY = {
    "Rewriting": REWRITING,
    "Applying deletes": APPLYING,
    "Committing": COMMITTING,
    "Removing": REMOVING,
    "Naming and telling": TELLING,
}
"""By the heading on docs/project/regressions.md."""
