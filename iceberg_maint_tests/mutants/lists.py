"""All hand-written mutants by what they are mutants of."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint_tests.core.gate_mutants import MUTANTS as GATE
from iceberg_maint_tests.mutants.mutant import Mutant
from iceberg_maint_tests.orphans.mutants import MUTANTS as ORPHANS
from iceberg_maint_tests.spark.anti_join_mutants import MUTANTS as ANTI_JOIN

LISTS: Mapping[str, tuple[Mutant, ...]] = {"gate": GATE, "anti_join": ANTI_JOIN, "orphans": ORPHANS}
