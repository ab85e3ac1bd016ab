"""What the kills of the daemon are judged by finds what must not be; `make qualify SUITE=daemon-kills` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_maint.core.model.table_state import BATCH_PROPERTY
from iceberg_maint_tests.qualification.daemon_kills.daemon import Victim, _kind
from iceberg_maint_tests.qualification.daemon_kills.lake import MIN_INPUT_FILES, TABLES, Lake

pytestmark = pytest.mark.seconds

NAME = TABLES[0]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "wh").mkdir()
    made = Lake(tmp_path)
    for _ in range(MIN_INPUT_FILES - 1):
        assert made.is_healed(NAME)
        made.append(NAME)
    yield made
    made.catalog.close()


def behind(lake: Lake, **summary: str) -> None:
    """A commit of no writer: rows that nobody wrote."""
    table = lake.table(NAME)
    rows = pa.table({"p": [0], "v": ["nobody's"]}, schema=table.schema().as_arrow())
    table.append(rows, snapshot_properties=summary)


def test_rows_commits_and_batches_are_reported_where_they_are_not_as_written(lake: Lake) -> None:
    assert not lake.is_healed(NAME)
    assert lake.faults(NAME) == []
    behind(lake, **{BATCH_PROPERTY: "b"})
    rows = f"{NAME}: rows are lost or doubled"
    assert lake.faults(NAME) == [rows]
    behind(lake, **{BATCH_PROPERTY: "b"})
    assert lake.faults(NAME) == [rows, f"{NAME}: batches committed more than once: ['b']"]


def test_commit_of_a_writer_that_is_no_ancestor_any_more_is_reported(lake: Lake) -> None:
    lake.table(NAME).manage_snapshots().rollback_to_snapshot(lake.appends[NAME][0]).commit()
    assert lake.faults(NAME) == [
        f"{NAME}: rows are lost or doubled",
        f"{NAME}: {MIN_INPUT_FILES - 1} commits of writers are no ancestors of main",
    ]


@pytest.mark.parametrize(
    ("command", "victim"),
    [
        (["/x/bin/python", "/x/bin/dagster-daemon", "run", "-m", "d"], Victim.DAEMON),
        (["/x/bin/python", "-m", "dagster", "api", "grpc", "--lazy-load-user-code"], Victim.CODE_SERVER),
        (["/x/bin/python", "/x/bin/dagster", "code-server", "start"], Victim.CODE_SERVER),
        (
            ["/x/bin/python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"],
            Victim.WORKER,
        ),
        (["/y/bin/java", "-cp", "z", "org.apache.spark.deploy.SparkSubmit"], Victim.JVM),
    ],
)
def test_process_is_identified_by_its_command(command: list[str], victim: Victim) -> None:
    assert _kind(command) is victim
