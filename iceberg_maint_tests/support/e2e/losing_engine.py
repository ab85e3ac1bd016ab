"""A run of Dagster on a real lake whose engine loses a row: its statement is a real commit of Iceberg's that claims to change none.

    python -m iceberg_maint_tests.support.e2e.losing_engine FOLDER

Prints, as JSON, whether the run succeeded, the text of its failure, and the last result of each check of the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.code_location import CodeLocation
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.engines.spark.jvm.bridge import bridge_of
from iceberg_maint.engines.spark_connect import SparkConnect
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.statement_engine import Statement
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.spark.writers import Writers

TABLE = TableId.parse("lake.db.events")
ENGINE = "spark-connect"
_APPLICATION = "app-1"
_SETTINGS = "run_monitoring: {enabled: true, free_slots_after_run_end_seconds: 60}\nconcurrency: {runs: {max_concurrent_runs: 1}}\n"


class Losing(SparkConnect):
    """Replaces the files of the partition `p = 0` by one without its first row, in this process."""

    context: Context

    def version(self, catalog: str) -> str:
        del catalog
        return "Spark 4.1.4, Iceberg 1.12.0"

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        """Finds it."""

    def run(self, statement: Statement, started: Callable[[str], None]) -> None:
        assert 'where => "`p` IN (0)"' in statement.text, statement.text
        started(_APPLICATION)
        writers = Writers(bridge_of(self.context.engine.spark.session()))
        table = writers.load(str(TABLE))
        kept = sorted(row for row in writers.rows(str(TABLE)) if row[0] == 0)[1:]
        whole = writers.data(table, [{"p": p, "v": v} for p, v in kept], partition=[0])
        commit = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId())
        for file in writers.files(table):
            if "/p=0/" in str(file.location()):
                commit.deleteFile(file)
        commit.addFile(whole).set("spark.app.id", _APPLICATION).commit()


def main() -> int:
    """Observes the table, then runs its maintenance."""
    folder = Path(sys.argv[1])
    config = load_config(folder / "config.yaml", {})
    context = build(config)
    engine = Losing(config.engines[ENGINE])
    context = engine.context = changed(context, elsewhere={ENGINE: engine})
    definitions = build_definitions(context, CodeLocation([TABLE], folder / "tables.json"))
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text(_SETTINGS, "utf-8")
    key = IcebergTranslator().get_asset_key(TABLE)
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        logs = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations = [log.get_dagster_event().asset_check_evaluation_data for log in logs]
    checks = {e.check_name: [e.passed, e.severity.value, e.description] for e in evaluations}
    failures = [e.step_failure_data for e in result.get_step_failure_events()]
    print(
        json.dumps(
            {
                "success": result.success,
                "failures": [
                    f.user_failure_data.description if f.user_failure_data else str(f.error) for f in failures
                ],
                "checks": checks,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
