"""Which tests several workers run together, and which first."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

DAEMONS = ("iceberg_maint_tests/defs/test_daemon.py", "iceberg_maint_tests/security/test_canaries.py")
PROGRAMS = (
    "iceberg_maint_tests/daemon_kills/test_lost_run.py",
    "iceberg_maint_tests/cli/test_archive_classes.py",
    "iceberg_maint_tests/demo/test_demo.py",
    "iceberg_maint_tests/e2e/test_damaged_lake.py",
    "iceberg_maint_tests/e2e/test_resume.py",
)
TOGETHER = (DAEMONS, PROGRAMS)
"""Modules whose tests start programs with a JVM of their own, and wait for them. Each group is one scope: one program
at a time, so that it has the time and the memory it needs."""

SPLIT = ("iceberg_maint_tests/program/test_program.py",)
"""Modules whose tests share nothing and are each as long as a module."""

LONG = (
    DAEMONS[0],
    PROGRAMS[0],
    *SPLIT,
    "iceberg_maint_tests/spark/deletes/equality/test_evolution.py",
    "iceberg_maint_tests/spark/deletes/test_convert.py",
    "iceberg_maint_tests/spark/deletes/test_anti_join.py",
    "iceberg_maint_tests/spark/scan/test_positions.py",
    "iceberg_maint_tests/demo/race/test_race.py",
)
"""Modules of more than a minute, longest first."""


SLOW = (
    "iceberg_maint_tests/cli/test_init.py",
    "iceberg_maint_tests/cli/test_program.py",
    "iceberg_maint_tests/core/commits/test_entry_digest.py",
    "iceberg_maint_tests/core/commits/test_gate_model.py",
    "iceberg_maint_tests/core/planning/test_plans_model.py",
    "iceberg_maint_tests/defs/",
    "iceberg_maint_tests/demo/",
    "iceberg_maint_tests/e2e/",
    "iceberg_maint_tests/ledger/test_leases.py",
    "iceberg_maint_tests/ledger/test_model.py",
    "iceberg_maint_tests/removal/test_kill.py",
    "iceberg_maint_tests/removal/test_layouts.py",
    "iceberg_maint_tests/removal/test_orphan_pass.py",
    "iceberg_maint_tests/removal/test_released.py",
    "iceberg_maint_tests/removal/test_second_catalog.py",
    "iceberg_maint_tests/loop/test_kill_grid.py",
    "iceberg_maint_tests/loop/test_reuse_files.py",
    "iceberg_maint_tests/loop/test_schedules.py",
    "iceberg_maint_tests/simulation/",
    "iceberg_maint_tests/test_hangs.py",
    "iceberg_maint_tests/wheel/",
)
"""Modules and folders of long sweeps, of models, of Dagster, and of programs that tests start: their tests are marked
`slow`."""

SECONDS = (
    "iceberg_maint_tests/audit/test_log.py",
    "iceberg_maint_tests/catalog/manifests/test_changed_files.py",
    "iceberg_maint_tests/catalog/manifests/test_memo.py",
    "iceberg_maint_tests/catalog/test_adapter.py",
    "iceberg_maint_tests/catalog/test_partition_values.py",
    "iceberg_maint_tests/catalog/test_s3_store.py",
    "iceberg_maint_tests/catalog/test_vended_credentials.py",
    "iceberg_maint_tests/cli/test_audit.py",
    "iceberg_maint_tests/cli/test_doctor.py",
    "iceberg_maint_tests/cli/test_foreign.py",
    "iceberg_maint_tests/cli/test_history_and_pause.py",
    "iceberg_maint_tests/cli/test_inspect.py",
    "iceberg_maint_tests/cli/test_orphans.py",
    "iceberg_maint_tests/cli/test_run.py",
    "iceberg_maint_tests/cli/test_screens.py",
    "iceberg_maint_tests/cli/test_transcripts.py",
    "iceberg_maint_tests/cli/test_usage.py",
    "iceberg_maint_tests/columnar/test_page_splice.py",
    "iceberg_maint_tests/core/decisions/test_retention_model.py",
    "iceberg_maint_tests/core/model/test_codec.py",
    "iceberg_maint_tests/core/planning/test_rewrite_position_delete_files_model.py",
    "iceberg_maint_tests/daemon_kills/",
    "iceberg_maint_tests/frames/",
    "iceberg_maint_tests/ledger/test_attempts.py",
    "iceberg_maint_tests/ledger/test_crash.py",
    "iceberg_maint_tests/ledger/test_migrations.py",
    "iceberg_maint_tests/ledger/test_unrecorded_runs.py",
    "iceberg_maint_tests/mutants/",
    "iceberg_maint_tests/removal/",
    "iceberg_maint_tests/refusals/test_every_code.py",
    "iceberg_maint_tests/loop/test_crashes.py",
    "iceberg_maint_tests/loop/test_housekeeping.py",
    "iceberg_maint_tests/loop/test_layout.py",
    "iceberg_maint_tests/loop/test_maintain.py",
    "iceberg_maint_tests/loop/test_records.py",
    "iceberg_maint_tests/loop/test_stops.py",
    "iceberg_maint_tests/security/",
    "iceberg_maint_tests/telemetry/test_receivers.py",
    "iceberg_maint_tests/test_habits.py",
    "iceberg_maint_tests/test_import_circles.py",
    "iceberg_maint_tests/test_scheduling.py",
)
"""Modules and folders that take seconds: their tests are marked `seconds`."""


def scope_of(nodeid: str) -> str:
    """What goes to one worker as a whole."""
    module = nodeid.partition("::")[0]
    return nodeid if module in SPLIT else _first_of_group(module)


def _first_of_group(module: str) -> str:
    return next((group[0] for group in TOGETHER if module in group), module)


def is_slow(nodeid: str) -> bool:
    """Whether the test is in a module or folder of SLOW."""
    return nodeid.startswith(SLOW)


def order_of(nodeid: str, *, spark: bool) -> int:
    """Place of the test's scope: the long modules, then modules that need Spark, then modules of long sweeps, then the
    others, so that the last scopes to be handed out are short."""
    module = _first_of_group(nodeid.partition("::")[0])
    if module in LONG:
        return LONG.index(module)
    return len(LONG) + (0 if spark else 1 if is_slow(nodeid) else 2)


class Scheduling(LoadScopeScheduling):
    """Each worker gets its next scope when it is nearly done with its last, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Gives the rest of a lost worker's tests to others. The test that ended the worker is not run again."""
        for unit in list(self.assigned_work.get(node, {}).values()):
            for nodeid, is_done in unit.items():
                if not is_done:
                    unit[nodeid] = True
                    super().remove_node(node)
                    return nodeid
        return super().remove_node(node)

    def schedule(self) -> None:
        """Also gives the worker that replaces a lost one enough to begin: a worker holds its last test back until it
        gets another one or the end."""
        super().schedule()
        for node in self.nodes:
            while (
                self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)
            if not self.workqueue:
                node.shutdown()
