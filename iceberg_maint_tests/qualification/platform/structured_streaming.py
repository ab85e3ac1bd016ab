"""Structured Streaming writes and reads a table that is maintained; both are killed and go on from their checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iceberg_maint_tests.qualification.platform.lake import (
    NONE,
    Lake,
    difference,
    expected,
    once,
    open_lake,
    wait_for,
)
from iceberg_maint_tests.qualification.platform.spark_process import BATCH_ROWS, SparkProcess, spark_process

_EVENTS = "db.events"
_CAUGHT_UP = "caught up"
_EXPIRED = "the snapshot was expired or removed"


def differences(folder: Path, _apart: Path) -> list[str]:
    """What differs from the expected."""
    with open_lake(folder) as lake:
        return [*_killed(lake), *_stopped(lake), *_changes(lake), *_deletes(lake)]


class _Stream:
    """One stream of `db.events`: its checkpoint, and the ids that its reader has kept."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.checkpoint, self.into = lake.folder / f"{name}-checkpoint", lake.folder / f"{name}-ids"

    def read(self, spark: SparkProcess, table: str, until: str = "", **options: str) -> None:
        names = {key.replace("_", "-"): value for key, value in options.items()}
        paths = {"checkpoint": str(self.checkpoint), "into": str(self.into)}
        spark.ask("read", table=f"lake.{table}", until=until, options=names, **paths)

    def committed(self) -> Path:
        """The offsets at the end of the newest finished batch."""
        names = (int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))
        return self.checkpoint / "offsets" / str(max(names))

    def repeat(self) -> None:
        """Takes back the note that the newest batch was finished, and the plan of the next one."""
        newest = int(self.committed().name)
        for file in (
            self.checkpoint / "commits" / f"{newest}",
            self.checkpoint / "offsets" / f"{newest + 1}",
        ):
            file.unlink(missing_ok=True)
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)

    def ids(self) -> Counter[object]:
        return Counter[object](
            i for file in self.into.glob("*.json") for i in json.loads(file.read_text("utf-8"))
        )


def _killed(lake: Lake) -> list[str]:
    """Writer and reader beside maintenance; both are killed; maintenance expires all that nobody holds; both go on."""
    writer, reader = _Stream(lake, "writer"), _Stream(lake, "reader")
    configs = [lake.config("columnar"), lake.config("native")]
    with (
        spark_process(lake.folder, lake.jdbc, "writer") as writing,
        spark_process(lake.folder, lake.jdbc, "reader") as reading,
    ):
        writing.sql(f"CREATE TABLE lake.{_EVENTS} (id bigint, v string) USING iceberg")
        writing.ask("write", table=f"lake.{_EVENTS}", checkpoint=str(writer.checkpoint))
        reader.read(reading, _EVENTS)
        with lake.maintained(_EVENTS, configs) as beside:
            wait_for(lambda: beside["replace"] >= 4, "four commits of maintenance beside the stream")
        wait_for(lambda: bool(reader.ids()), "the reader's first rows")
        reading.ask("check")
        writing.ask("check")
        writing.kill()
        reading.kill()
    name = (f"lake.{_EVENTS}", "reader")
    lake.call("readers", "set", *name, "--checkpoint", str(reader.checkpoint), config=configs[0])
    lake.maintain(_EVENTS, lake.config("columnar", keep=1))
    written = lake.ids(_EVENTS)
    # As if the writer had been killed between its commit and the note of it: the batch is committed again.
    writer.repeat()
    with spark_process(lake.folder, lake.jdbc, "writer-again") as writing:
        writing.ask("write", table=f"lake.{_EVENTS}", checkpoint=str(writer.checkpoint))

        def more() -> bool:
            writing.ask("check")
            return len(lake.ids(_EVENTS)) > len(written) + 2 * BATCH_ROWS

        wait_for(more, "batches after the restart", 60)
    found = lake.ids(_EVENTS)
    with spark_process(lake.folder, lake.jdbc, "reader-again") as reading:
        began = _failure(lambda: reader.read(reading, _EVENTS, "availableNow"))
        reader.read(reading, _EVENTS, _CAUGHT_UP)
    batches = int(writer.committed().name) + 1
    print(f"  {found.total()} rows in {batches} batches, beside {dict(beside)}")
    return expected(
        {
            "rows written": (difference(found, once(len(found))), NONE),
            "rows read": (difference(reader.ids(), found), NONE),
            "availableNow without its first snapshot": (_EXPIRED in began, True),
        }
    )


def _stopped(lake: Lake) -> list[str]:
    """A reader that nobody registered stops; maintenance expires the snapshot that it has read up to. It says so."""
    late = _Stream(lake, "late")
    table = "db.late"
    with spark_process(lake.folder, lake.jdbc, "late") as spark:
        spark.sql(f"CREATE TABLE lake.{table} (id bigint, v string) USING iceberg")
        for i in range(4):
            spark.sql(f"INSERT INTO lake.{table} VALUES ({i}, 'a')")
        late.read(spark, table, _CAUGHT_UP)
        spark.sql(f"INSERT INTO lake.{table} VALUES (4, 'a')")
        lake.maintain(table, lake.config("columnar", keep=1))
        said = _failure(lambda: late.read(spark, table, _CAUGHT_UP))
    print(f"  a reader that nobody registered: {said.splitlines()[0]}")
    return expected(
        {"expired": (_EXPIRED in said, True), "rows read": (difference(late.ids(), once(4)), NONE)}
    )


def _failure(work: Callable[[], None]) -> str:
    """What a query says when it fails, or that it does not."""
    try:
        work()
    except RuntimeError as error:
        return str(error)
    return "no error"


def _changes(lake: Lake) -> list[str]:
    """Changelog views and incremental reads over appends, deletes by rewritten files, and maintenance between them."""
    table = "db.changes"
    with spark_process(lake.folder, lake.jdbc, "changes") as spark:
        spark.sql(f"CREATE TABLE lake.{table} (id bigint, v string) USING iceberg")
        spark.sql(f"INSERT INTO lake.{table} VALUES (0, 'a')")
        first = _head(lake, table)
        appended = [0]
        for strategy in ("columnar", "native"):
            for i in range(len(appended), len(appended) + 4):
                spark.sql(f"INSERT INTO lake.{table} VALUES ({i}, 'a')")
                appended.append(i)
            lake.maintain(table, lake.config(strategy, age=86400))
        before_delete = _head(lake, table)
        spark.sql(f"DELETE FROM lake.{table} WHERE id IN (3, 5)")
        for i in (9, 10, 11, 12):
            spark.sql(f"INSERT INTO lake.{table} VALUES ({i}, 'a')")
        lake.maintain(table, lake.config("columnar", age=86400))
        head = _head(lake, table)
        options = f"map('start-snapshot-id','{first}','end-snapshot-id','{head}')"
        spark.sql(
            f"CALL lake.system.create_changelog_view(table => '{table}', options => {options}, changelog_view => 'changes')"
        )
        changes = Counter((kind, i) for kind, i in spark.sql("SELECT _change_type, id FROM changes"))
        incremental = spark.ask("incremental", table=f"lake.{table}", start=first, end=before_delete)
        over_all = spark.ask("incremental", table=f"lake.{table}", start=first, end=head)
    operations = Counter(s["operation"] for s in lake.summaries(table))
    wanted = Counter({("INSERT", i): 1 for i in range(1, 13)} | {("DELETE", i): 1 for i in (3, 5)})
    print(f"  changelog over {dict(operations)}")
    return expected(
        {
            "changes": (sorted(changes.items()), sorted(wanted.items())),
            "maintenance between": (operations["replace"] >= 3, True),
            "incremental read": (incremental, list(range(1, 9))),
            "incremental read over the delete": (over_all, list(range(1, 13))),
        }
    )


def _deletes(lake: Lake) -> list[str]:
    """Position deletes of format v2 become deletion vectors of v3: a reader sees neither that nor the rows again."""
    table, reader = "db.marked", _Stream(lake, "marked")
    with spark_process(lake.folder, lake.jdbc, "marked") as spark:
        modes = "'format-version'='2', 'write.delete.mode'='merge-on-read'"
        spark.sql(f"CREATE TABLE lake.{table} (id bigint, v string) USING iceberg TBLPROPERTIES ({modes})")
        for i in range(4):
            spark.sql(f"INSERT INTO lake.{table} SELECT id, 'a' FROM range({10 * i}, {10 * i + 10})")
            spark.sql(f"DELETE FROM lake.{table} WHERE id IN ({10 * i}, {10 * i + 1})")
        spark.sql(f"INSERT INTO lake.{table} VALUES (40, 'a')")
        reader.read(spark, table, _CAUGHT_UP, streaming_skip_delete_snapshots="true")
        spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('format-version'='3')")
        config = lake.config("columnar", age=86400)
        lake.call("run", f"lake.{table}", "--operation", "rewrite_position_delete_files", config=config)
        converted = lake.summaries(table)[0]
        lake.maintain(table, config)
        spark.sql(f"INSERT INTO lake.{table} VALUES (41, 'a')")
        # Without an option: none of the commits since is a delete.
        reader.read(spark, table, _CAUGHT_UP)
        rows: Any = [i for (i,) in spark.sql(f"SELECT id FROM lake.{table} ORDER BY id")]
    return expected(
        {
            "conversion": ((converted["operation"], converted.get("added-dvs")), ("replace", "4")),
            "rows read": (difference(reader.ids(), once(42)), NONE),
            "rows": (rows, [i for i in range(42) if i >= 40 or i % 10 > 1]),
        }
    )


def _head(lake: Lake, table: str) -> int:
    snapshot = lake.table(table).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id
