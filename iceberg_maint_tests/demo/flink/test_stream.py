from __future__ import annotations

import duckdb
import pytest

from bench.flink.stream import TABLES, Stream

pytestmark = pytest.mark.slow

STREAM = Stream(rows=100, ids=5, rows_per_second=10)


def rows(query: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as db:
        return sorted(db.execute(query).fetchall())


@pytest.mark.parametrize("first", [0, 1, 7, 10, 11, 100])
def test_expected_rows_are_those_of_a_dictionary_upserted_in_order(first: int) -> None:
    table = {}
    for n in range(first):
        table[f"r{n % 2}", n * 7 % 5] = (n, None if n % 5 == 0 else f"note {n}")
    assert rows(STREAM.expected_sql(first)) == sorted((*key, *value) for key, value in table.items())


def test_every_key_is_met_in_turn() -> None:
    assert len(rows(STREAM.expected_sql(STREAM.keys))) == STREAM.keys == 10
    assert len(rows(STREAM.expected_sql(STREAM.keys + 1))) == STREAM.keys


def test_statements_upsert_every_table_in_one_job() -> None:
    script = STREAM.statements({"name": "lake", "type": "iceberg", "warehouse": "file:///w"}, TABLES)
    assert "CREATE CATALOG lake WITH ('type' = 'iceberg', 'warehouse' = 'file:///w');\n" in script
    assert "'fields.n.end' = '99'" in script
    assert script.count("INSERT INTO ") == len(TABLES) == 2
    assert script.count("EXECUTE STATEMENT SET") == 1
    assert "PARTITIONED BY (region) WITH ('format-version' = '2'" in script
    assert "NOT ENFORCED) WITH ('format-version' = '3'" in script
