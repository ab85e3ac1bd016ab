"""An Airflow DAG that maintains each due table in a task of its own. It needs Airflow 3 and no provider.

The program may be in another Python environment than Airflow:

- `ICEBERG_MAINT_COMMAND`: the program, by default `iceberg-maint`.
- `ICEBERG_MAINT_CONFIG`: its configuration file.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

COMMAND = shlex.split(os.environ.get("ICEBERG_MAINT_COMMAND", "iceberg-maint"))
TABLES_AT_ONCE = 2
MAX_SECONDS = 3000
"""No batch starts after this time. Airflow ends a task ten minutes later, which is safe: the next run continues."""
FAILED, UNKNOWN = 1, 4


def call(*arguments: str, accepted: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """The document of a command. A refusal or a wrong configuration is not tried again, any other failure is."""
    done = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False)
    logging.getLogger("airflow.task").info("%s", done.stderr)
    if done.returncode in accepted:
        return dict(json.loads(done.stdout))
    message = f"iceberg-maint {arguments[0]} exited with {done.returncode}: {done.stderr[-2000:]}"
    if done.returncode in (FAILED, UNKNOWN):
        raise RuntimeError(message)
    raise AirflowFailException(message)


@dag(
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
)
def iceberg_maintenance() -> None:
    """One task lists the due tables, then one task maintains each."""

    @task
    def due() -> list[str]:
        # Tables that failed or are refused make the exit code 1 or 3; the others are maintained nevertheless.
        document = call("tables", accepted=(0, 1, 3))
        return [table["table"] for table in document["tables"] if table.get("status") == "due"]

    @task(
        retries=2,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(seconds=MAX_SECONDS + 600),
        max_active_tis_per_dag=TABLES_AT_ONCE,
        map_index_template="{{ table }}",
    )
    def maintain(table: str) -> None:
        call("reconcile", table)  # Settles a commit whose answer a run before has lost.
        call("run", table, "--max-seconds", str(MAX_SECONDS))

    maintain.expand(table=due())


iceberg_maintenance()
