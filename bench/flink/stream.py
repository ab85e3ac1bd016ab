"""The stream that Flink upserts. Every value follows from its number, so the expected rows are known
without reading the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.demo.workspace import NAMESPACE

REGIONS = 2
_NEVER_NOTED = 5


@dataclass(frozen=True, slots=True)
class FlinkTable:
    """One table that Flink creates and upserts."""

    name: str
    sick: str
    format_version: int
    partitioned: bool

    def create_sql(self, catalog: str) -> str:
        """Flink's statement that creates it. Its equality deletes name both columns of the key."""
        partitioned = " PARTITIONED BY (region)" if self.partitioned else ""
        return (
            f"CREATE TABLE {catalog}.{NAMESPACE}.{self.name} "
            "(region STRING NOT NULL, id INT NOT NULL, v BIGINT, note STRING, "
            f"PRIMARY KEY (region, id) NOT ENFORCED){partitioned} "
            f"WITH ('format-version' = '{self.format_version}', 'write.upsert.enabled' = 'true')"
        )


TABLES = (
    FlinkTable("cdc_flink_v2", "upserts by region: equality and position deletes", 2, partitioned=True),
    FlinkTable("cdc_flink_v3", "upserts: equality deletes and deletion vectors", 3, partitioned=False),
)


@dataclass(frozen=True, slots=True)
class Stream:
    """`rows` upserts with the numbers 0, 1, 2 … in that order, `rows_per_second` at a time.

    Number n sets the row of the key (n mod 2, 7 n mod `ids`) to the value n. With `ids` odd and not
    divisible by 7 these are 2 `ids` keys in turn.
    """

    rows: int
    ids: int
    rows_per_second: int

    @property
    def keys(self) -> int:
        """Number of rows after every key was upserted."""
        return REGIONS * self.ids

    def statements(self, catalog_properties: Mapping[str, str], tables: Sequence[FlinkTable]) -> str:
        """The script of Flink's SQL client: creates the tables and upserts them in one job.

        `catalog_properties` are Iceberg's, for the catalog of that name.
        """
        catalog = catalog_properties["name"]
        options = {k: v for k, v in catalog_properties.items() if k != "name"}
        with_options = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        numbers = (
            "CREATE TEMPORARY TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', "
            f"'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{self.rows - 1}', "
            f"'rows-per-second' = '{self.rows_per_second}')"
        )
        lines = [
            "SET 'execution.target' = 'local'",
            "SET 'table.dml-sync' = 'true'",
            f"CREATE CATALOG {catalog} WITH ({with_options})",
            f"CREATE DATABASE IF NOT EXISTS {catalog}.{NAMESPACE}",
            *(table.create_sql(catalog) for table in tables),
            numbers,
            "EXECUTE STATEMENT SET BEGIN\n"
            + "".join(
                f"INSERT INTO {catalog}.{NAMESPACE}.{table.name} SELECT {self._columns('STRING')} FROM numbers;\n"
                for table in tables
            )
            + "END",
        ]
        return "".join(f"{line};\n" for line in lines)

    def expected_sql(self, first: int) -> str:
        """The rows that a table must have after the upserts of the `first` numbers, as a DuckDB query.

        These are the rows of the highest number of every key. The query reads no table.
        """
        return (
            f"SELECT {self._columns('VARCHAR')} FROM (SELECT range AS n FROM range({first})) "
            f"QUALIFY row_number() OVER (PARTITION BY mod(n, {REGIONS}), mod(n * 7, {self.ids}) "
            "ORDER BY n DESC) = 1"
        )

    def _columns(self, text: str) -> str:
        """The row of number n, in the SQL that Flink and DuckDB share; `text` is the name of their string type."""
        return (
            f"CONCAT('r', CAST(MOD(n, {REGIONS}) AS {text})) AS region, "
            f"CAST(MOD(n * 7, {self.ids}) AS INT) AS id, n AS v, "
            f"CASE WHEN MOD(n, {_NEVER_NOTED}) = 0 THEN CAST(NULL AS {text}) "
            f"ELSE CONCAT('note ', CAST(n AS {text})) END AS note"
        )
