"""One kill of everything at once, as a reboot: what no process of Dagster's is left to tell."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from iceberg_maint_tests.qualification.daemon_kills.__main__ import World
from iceberg_maint_tests.qualification.daemon_kills.daemon import Victim
from iceberg_maint_tests.qualification.daemon_kills.lake import MIN_INPUT_FILES
from iceberg_maint_tests.qualification.daemon_kills.moments import Moment, since_now, started_runs

NAME = "db.a"

pytestmark = [
    pytest.mark.seconds,
    pytest.mark.spark,
    pytest.mark.timeout(420),
    pytest.mark.together("programs"),
    pytest.mark.long(280),
    pytest.mark.variant,  # two minutes; defs/test_lost_runs.py has the same loss without processes
]


def test_run_killed_with_its_code_server_and_daemon_is_failed_and_its_table_healed(tmp_path: Path) -> None:
    # Only one run is under way at a time: none for what this test does not ask about.
    world = World(tmp_path, "  remove_orphan_files: {enabled: false}\n")
    world.daemon.start()
    try:
        at_work = since_now(Moment.ATTEMPT_STARTED, world.ledger_url, world.instance)
        for _ in range(MIN_INPUT_FILES):
            world.lake.append(NAME)
        assert world.wait(at_work, 120, every_seconds=0.1)
        [killed] = started_runs(world.instance)
        assert world.daemon.kill(Victim.ALL) >= 3
        assert world.wait(lambda: world.lake.is_healed(NAME) and not world.left_behind(), 240)
        assert world.instance.get_run_by_id(killed.run_id).status is dg.DagsterRunStatus.FAILURE
        [told] = world.instance.all_logs(killed.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        assert "The run's process has sent no heartbeat for" in str(told.message)
        assert world.lake.faults(NAME) == []
    finally:
        world.daemon.kill(Victim.ALL)
        world.instance.dispose()
        world.lake.catalog.close()
