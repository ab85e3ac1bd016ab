"""All hand-written mutants by what they are mutants of."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint_tests.qualification.mutants.anti_join import MUTANTS as ANTI_JOIN
from iceberg_maint_tests.qualification.mutants.columnar import MUTANTS as COLUMNAR
from iceberg_maint_tests.qualification.mutants.gate import MUTANTS as GATE
from iceberg_maint_tests.qualification.mutants.mutant import Mutant
from iceberg_maint_tests.qualification.mutants.orphans import MUTANTS as ORPHANS

LISTS: Mapping[str, tuple[Mutant, ...]] = {
    "gate": GATE,
    "anti_join": ANTI_JOIN,
    "orphans": ORPHANS,
    "columnar": COLUMNAR,
}
