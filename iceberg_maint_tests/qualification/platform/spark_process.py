"""A Spark of its own in another process, which does what it is asked: statements, and one stream.

    python -m iceberg_maint_tests.qualification.platform.spark_process FOLDER JDBC_ADDRESS

reads a request per line and answers it on a line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint_tests.nightly.suites import PROJECT

BATCH_ROWS = 20
"""Rows of one batch of the source `rate-micro-batch`, whose values are 0, 1, 2 … in any run."""


class SparkProcess:
    """The other process. `kill` ends it as a crash does."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        module = "iceberg_maint_tests.qualification.platform.spark_process"
        self._log = folder / f"{name}.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("wb"),
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> Any:
        """The answer to a request. Raises RuntimeError with the message of its failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Spark has ended: {self._log.read_text('utf-8', 'replace')[-2000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def sql(self, text: str) -> list[list[Any]]:
        """The rows of a statement."""
        return self.ask("sql", text=text)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def spark_process(folder: Path, url: str, name: str) -> Iterator[SparkProcess]:
    """A process that ends with the block."""
    process = SparkProcess(folder, url, name)
    try:
        yield process
    finally:
        process.kill()


class _Work:
    """The requests."""

    def __init__(self, folder: Path, url: str) -> None:
        from pyspark.sql import SparkSession

        from iceberg_maint.engines.spark.session.jars import load_lock

        jars = [PROJECT / ".cache" / "jars" / jar.file_name for jar in load_lock().jars]
        builder = SparkSession.builder.master("local[2]").config(
            map={
                "spark.jars": ",".join(map(str, jars)),
                "spark.driver.memory": "640m",
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "jdbc",
                "spark.sql.catalog.lake.uri": url,
                "spark.sql.catalog.lake.jdbc.schema-version": "V1",
                "spark.sql.catalog.lake.warehouse": f"file://{folder}/warehouse",
                "spark.sql.catalog.lake.cache-enabled": "false",
            }
        )
        self._spark = builder.getOrCreate()
        self._query: Any = None

    def sql(self, text: str) -> list[list[Any]]:
        return [list(row) for row in self._spark.sql(text).collect()]

    def incremental(self, table: str, start: int, end: int) -> list[int]:
        """The ids that an incremental read of `(start, end]` shows."""
        read = (
            self._spark.read.format("iceberg")
            .option("start-snapshot-id", start)
            .option("end-snapshot-id", end)
        )
        return sorted(row.id for row in read.load(table).select("id").collect())

    def write(self, table: str, checkpoint: str) -> None:
        """Starts to append batches of `BATCH_ROWS` rows."""
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS)
        rows = (
            source.option("numPartitions", 1)
            .load()
            .selectExpr("value AS id", "cast(value % 7 AS string) AS v")
        )
        writer = rows.writeStream.format("iceberg").trigger(processingTime="1 second")
        self._query = writer.option("checkpointLocation", checkpoint).toTable(table)

    def read(self, table: str, checkpoint: str, into: str, until: str, options: Mapping[str, str]) -> None:
        """Starts to write the ids of a table's stream to a file per batch, the same file if a batch is repeated. Ends the query when
        it has read what is there, by the trigger with `until` "availableNow", else by a stop; goes on without `until`. Raises
        StreamingQueryException."""

        def keep(rows: Any, batch: int) -> None:
            (Path(into) / f"{batch}.json").write_text(json.dumps([row.id for row in rows.collect()]), "utf-8")

        Path(into).mkdir(exist_ok=True)
        stream = self._spark.readStream.format("iceberg").options(**options).load(table)
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        trigger = {until: True} if until == "availableNow" else {"processingTime": "1 second"}
        self._query = writer.trigger(**trigger).start()
        if until == "availableNow":
            self._query.awaitTermination()
        elif until:
            self._query.processAllAvailable()
            self._query.stop()

    def check(self) -> None:
        """Raises StreamingQueryException if the stream has failed."""
        if (failure := self._query.exception()) is not None:
            raise failure


def _main(folder: Path, url: str) -> None:
    # Spark's own output must not be among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    work = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            work = work or _Work(folder, url)
            answer = {"answer": getattr(work, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - the asker raises it
            answer = {"error": str(error)}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
