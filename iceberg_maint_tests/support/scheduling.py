"""Which tests several workers run together, and which first."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

DAEMONS = ("iceberg_maint_tests/defs/test_daemon.py", "iceberg_maint_tests/security/test_canaries.py")
PROGRAMS = (
    "iceberg_maint_tests/qualification/daemon_kills/test_lost_run.py",
    "iceberg_maint_tests/cli/test_archive_classes.py",
    "iceberg_maint_tests/demo/test_demo.py",
    "iceberg_maint_tests/e2e/test_damaged_lake.py",
    "iceberg_maint_tests/e2e/test_resume.py",
)
TOGETHER = (DAEMONS, PROGRAMS)
"""Modules whose tests start programs with a JVM of their own, and wait for them. Each group is one scope: one program
at a time, so that it has the time and the memory it needs."""

SPLIT = ("iceberg_maint_tests/qualification/program/test_program.py",)
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


def scope_of(nodeid: str) -> str:
    """What goes to one worker as a whole."""
    module = nodeid.partition("::")[0]
    return nodeid if module in SPLIT else _first_of_group(module)


def _first_of_group(module: str) -> str:
    return next((group[0] for group in TOGETHER if module in group), module)


def order_of(nodeid: str, *, spark: bool, slow: bool) -> int:
    """Place of the test's scope: the long modules, then modules that need Spark, then modules of long sweeps, then the
    others, so that the last scopes to be handed out are short."""
    module = _first_of_group(nodeid.partition("::")[0])
    if module in LONG:
        return LONG.index(module)
    return len(LONG) + (0 if spark else 1 if slow else 2)


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
