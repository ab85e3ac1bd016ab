"""The job that publishes the audit log, and its schedule."""

from __future__ import annotations

import dagster as dg
import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.build import build_definitions
from iceberg_maint.defs.integrations import AUDIT_JOB, AuditPublishing
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations.audit.publish import Published
from iceberg_maint_tests.defs.conftest import World

pytestmark = pytest.mark.slow

T = TableId.parse("lake.db.t")


def definitions(
    world: World, publishing: AuditPublishing | None, shard: tuple[int, int] = (0, 1)
) -> dg.Definitions:
    return build_definitions(world.context, [T], world.table_list, publishing=publishing, shard=shard)


def publishing(published: Published, schedule: str = "17 * * * *") -> AuditPublishing:
    return AuditPublishing(lambda: published, schedule)


def test_job_publishes_and_is_scheduled(world: World) -> None:
    made = definitions(world, publishing(Published(entries=3, appends=1)))
    assert made.resolve_job_def(AUDIT_JOB).execute_in_process(instance=world.instance).success
    schedule = made.resolve_schedule_def(f"{AUDIT_JOB}_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("17 * * * *", AUDIT_JOB)


def test_job_of_a_damaged_log_fails_with_the_chain(world: World) -> None:
    damaged = Published(damaged={"u1": "the entries 2 to 2 are missing"})
    job = definitions(world, publishing(damaged)).resolve_job_def(AUDIT_JOB)
    result = job.execute_in_process(instance=world.instance, raise_on_error=False)
    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert "ICM-143 u1: the entries 2 to 2 are missing" in str(failure.step_failure_data.user_failure_data)


def test_location_without_an_audit_table_and_other_shards_have_no_job(world: World) -> None:
    for made in (definitions(world, None), definitions(world, publishing(Published()), (1, 2))):
        assert AUDIT_JOB not in {job.name for job in made.jobs or ()}


def test_schedule_that_is_no_cron_expression_is_an_error_with_its_fix(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"audit\.table_schedule is '61 \* \* \* \*'"):
        definitions(world, publishing(Published(), "61 * * * *"))
