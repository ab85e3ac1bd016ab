"""The parts of the race one after the other: the writer, this project, stock, and the judge of them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.race.strategies import Ours, Stock, Way
from bench.race.stream import HOT_KEYS, RaceTable, tables_of
from bench.race.verdict import Raced, judge
from bench.race.writer import Upserter, acknowledged
from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.demo.duckdb_reader import DuckDBReader
from iceberg_maint.wiring.adapters import build, spark_engine
from iceberg_maint_tests.support.context import changed, spark_access

# The product does not depend on the bench, which runs by itself in the nightly demos.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.long(140), pytest.mark.variant]

LOADED = HOT_KEYS + 4
CONFIG = """\
ledger: sqlite:///{here}/ledger.db
catalogs:
  lake: {{type: jdbc, uri: "sqlite:///{lake}/catalog.db", warehouse: "file://{lake}/warehouse"}}
defaults:
  rewrite_data_files: {{equality_delete_max_age_seconds: 0}}
"""


class Race:
    """Two of a way's tables, and what is needed to write, maintain and judge them."""

    def __init__(self, way: Way, spark: SparkSession, folder: Path, lake: Path) -> None:
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(here=folder, lake=lake), "utf-8")
        real = build(load_config(config, {}))
        self.context = changed(
            real,
            engine=lambda: spark_engine(real.catalogs, lambda: spark),
            spark=spark_access(session=lambda: spark),
        )
        self.way = way
        self.journal = folder / "journal"
        self.tables = tables_of(way.name)[1:]
        self._file = self.journal.open("a", encoding="utf-8")
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.demo")
        for table in self.tables:
            spark.sql(table.create_sql(LOADED))
        self.writer = Upserter(spark, self.tables, self._file)

    def rounds(self, *passed: float) -> None:
        for part in passed:
            self.writer.round(part)

    def judged(self, table: RaceTable) -> Raced:
        state = self.context.catalogs["lake"].pin(TableId("lake", ("demo",), table.name))
        reader = DuckDBReader()
        try:
            told = acknowledged(self.journal, self.tables)[table.name]
            return judge(self.way, table, state, told, (1, ""), reader, LOADED)
        finally:
            reader.close()

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def race(spark: SparkSession, tmp_path: Path, lake_dir: Path) -> Iterator[Race]:
    found = Race(Ours(), spark, tmp_path, lake_dir)
    yield found
    found.close()
    for table in found.tables:
        spark.sql(f"DROP TABLE {table.full_name} PURGE")


def test_race_of_ours_lands_commits_and_what_is_lost_or_brought_back_is_counted(race: Race) -> None:
    race.rounds(0, 0, 0, 0.3, 0.3, 0.6, 0.6, 0.9)
    for table in race.tables:
        assert race.way.maintain(race.context, table).commits >= 1
    race.rounds(0.9)
    for table in race.tables:
        raced = race.judged(table)
        assert raced.safe, raced
        assert raced.landed >= 1
        assert (raced.writer.commits, raced.writer.failed) == (9, 0)
        assert raced.writer.evolved_at == ((3, 5, 7) if table.kind.evolutions else ())
    # Who is not the writer and takes a row, or brings one, is told so.
    table = race.tables[0]
    before = race.judged(table)
    race.context.engine.spark.session().sql(f"INSERT INTO {table.full_name} VALUES ('r0', 2, 99, '')")
    race.context.engine.spark.session().sql(f"DELETE FROM {table.full_name} WHERE v = 7")
    after = race.judged(table)
    assert (after.landed - before.landed, after.lost, after.back) == (2, 8, 1)
    assert not after.safe
    # What stock lands is counted as well.
    beside = race.tables[1]
    landed = race.judged(beside).landed
    tried = Stock("stock", "stock", "'rewrite-all', 'true'").maintain(race.context, beside)
    assert (tried.commits, tried.failure) == (1, "")
    assert race.judged(beside).landed == landed + 1
