"""Which variants of a test `make test` leaves to `make qualify SUITE=variants`.

A parametrized test goes through versions, routes, seeds and places. Where one variant costs seconds, `make test` runs
some, drawn by the names of the tests: other versions and routes for each test. A change that breaks only a variant
that was not drawn is rare, and `make qualify SUITE=variants` finds it.
"""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

import pytest

DRAWN = {
    "iceberg_maint_tests/cli/test_audit.py::test_run_that_dies_at_an_entry": 2,
    "iceberg_maint_tests/e2e/test_resume.py": 1,
    "iceberg_maint_tests/qualification/kill/test_kill.py": 4,
    "iceberg_maint_tests/removal/test_kill.py": 3,
    "iceberg_maint_tests/removal/test_second_catalog.py": 2,
    "iceberg_maint_tests/loop/test_kill_grid.py": 20,
    "iceberg_maint_tests/loop/test_schedules.py": 8,
    "iceberg_maint_tests/qualification/simulation/test_lying_catalog.py": 8,
    "iceberg_maint_tests/qualification/simulation/test_mutants.py": 6,
    "iceberg_maint_tests/qualification/simulation/test_zombies.py": 6,
    "iceberg_maint_tests/spark/commit/test_expire_snapshots.py": 1,
    "iceberg_maint_tests/spark/commit/test_gate.py": 2,
    "iceberg_maint_tests/spark/commit/test_gate_equality_deletes.py": 2,
    "iceberg_maint_tests/spark/commit/test_publish_waits.py": 1,
    "iceberg_maint_tests/spark/commit/test_released_files.py": 1,
    "iceberg_maint_tests/spark/commit/test_rewrite_files.py": 1,
    "iceberg_maint_tests/spark/commit/test_rewrite_files_conversion.py": 1,
    "iceberg_maint_tests/spark/commit/test_rewrite_manifests.py::test_gate": 3,
    "iceberg_maint_tests/spark/commit/test_rewrite_manifests.py::test_reg": 1,
    "iceberg_maint_tests/spark/deletes/equality/": 1,
    "iceberg_maint_tests/spark/deletes/test_anti_join.py": 1,
    "iceberg_maint_tests/spark/deletes/test_convert.py": 1,
    "iceberg_maint_tests/spark/deletes/test_membership.py": 2,
    "iceberg_maint_tests/spark/deletes/test_merge_position_deletes.py": 1,
    "iceberg_maint_tests/spark/rewrite/test_bin_pack.py": 2,
    "iceberg_maint_tests/spark/rewrite/test_bin_pack_schemas.py": 1,
    "iceberg_maint_tests/spark/rewrite/test_columnar.py": 1,
    "iceberg_maint_tests/spark/rewrite/test_columnar_differential.py": 3,
    "iceberg_maint_tests/spark/rewrite/test_planner_differential.py": 2,
    "iceberg_maint_tests/spark/rewrite/test_sort.py": 1,
    "iceberg_maint_tests/spark/test_column_types.py": 4,
    "iceberg_maint_tests/spark/test_pending_manifests.py": 2,
    "iceberg_maint_tests/spark/test_reuse_files.py": 2,
    "iceberg_maint_tests/spark/test_verify.py": 1,
    "iceberg_maint_tests/spark/test_verify_deletes.py": 1,
}
"""How many variants of each test `make test` runs, by the beginning of the test's id."""


class Variants:
    """Marks the variants that are not drawn, before `-m` selects."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_test: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            by_test[item.nodeid.partition("[")[0]].append(item)
        for nodeid, variants in by_test.items():
            for item in not_drawn(nodeid, variants):
                item.add_marker(pytest.mark.variant)


def not_drawn(nodeid: str, variants: list[pytest.Item]) -> list[pytest.Item]:
    """The variants of a test that `make test` does not run: all but those with the smallest checksums of their ids."""
    count = next((n for start, n in DRAWN.items() if nodeid.startswith(start)), len(variants))
    return sorted(variants, key=lambda item: (crc32(item.nodeid.encode()), item.nodeid))[count:]
