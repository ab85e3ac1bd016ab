"""Guards that are switched off one by one, each with the seed of a life that shows it. The test of the random programs
must pass with the guard and fail without it.

python -m iceberg_maint_tests.qualification.program.faults
"""

from __future__ import annotations

import os
import sys

from iceberg_maint_tests.qualification.mutants.mutant import Edit, Mutant
from iceberg_maint_tests.qualification.mutants.run import living, prepare

_TEST = (
    "iceberg_maint_tests/qualification/program/test_program.py"
    "::test_program_of_writers_and_maintenance_leaves_the_rows_of_its_model"
)


FAULTS: tuple[tuple[int, Mutant], ...] = (
    (
        4,
        Mutant(
            "a source or a delete is known by its path alone",
            "core/commits/gate_rules.py",
            "    for entry in (*change.files.removed, *change.files.arrivals):\n",
            "    for entry in ():\n",
            (_TEST,),
        ),
    ),
    (
        15,
        Mutant(
            "a delete that Iceberg's index omits is dropped unapplied",
            "engines/spark/scan/scan.py",
            "    if equality_deletes.isEmpty() or tasks.isEmpty():\n",
            "    if True:\n",
            (_TEST,),
            (
                Edit(
                    "engines/spark/scan/staging.py",
                    "        if count != planned[path]:\n",
                    "        if False:\n",
                ),
            ),
        ),
    ),
    (
        3059,
        Mutant(
            "a line of commits beside ours is none",
            "removal/second_owner.py",
            "if before is not None:",
            "if False:",
            (_TEST,),
        ),
    ),
)
"""By seed of 40 steps."""


def main() -> int:
    """Returns 1 if a life does not show a fault."""
    prepare()
    alive = 0
    for seed, fault in FAULTS:
        os.environ["ICEBERG_MAINT_TEST_SEED"] = str(seed)
        alive += living([fault])
    return min(alive, 1)


if __name__ == "__main__":
    sys.exit(main())
