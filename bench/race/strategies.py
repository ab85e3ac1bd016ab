"""The strategies of the race: Spark's stock procedure with its defaults, the same with its safe setting, and
this project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from bench.race.stream import RaceTable
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, one_line
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain

_MAX_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """One pass over one table: commits tried, and the message of the last failure."""

    commits: int
    failure: str = ""


class Way(Protocol):
    """A strategy of maintenance."""

    @property
    def name(self) -> str:
        """The prefix of the names of its tables."""

    @property
    def title(self) -> str:
        """Its title in the output."""

    def maintain(self, context: Context, table: RaceTable) -> Tried:
        """Does the due maintenance of the table's data once."""


@dataclass(frozen=True, slots=True)
class Stock:
    """The procedure `rewrite_data_files` of Iceberg's Spark context, with options as SQL or none."""

    name: str
    title: str
    options: str = ""

    def maintain(self, context: Context, table: RaceTable) -> Tried:
        """Calls the procedure once. A call without a file to rewrite tries no commit."""
        more = f", options => map({self.options})" if self.options else ""
        call = f"CALL {CATALOG}.system.rewrite_data_files(table => '{NAMESPACE}.{table.name}'{more})"
        try:
            (row,) = context.engine.spark.session().sql(call).collect()
        except JVM_ERRORS as error:
            return Tried(1, one_line(error))
        return Tried(int(row["rewritten_data_files_count"] > 0))


@dataclass(frozen=True, slots=True)
class Ours:
    """This project."""

    name: str = "ours"
    title: str = "iceberg_maint"

    def maintain(self, context: Context, table: RaceTable) -> Tried:
        """One run of the operations on data."""
        identifier = TableId(CATALOG, (NAMESPACE,), table.name)
        request = Request(f"race-{uuid4().hex[:12]}", max_batches=_MAX_BATCHES)
        outcomes = maintain(identifier, request, context)
        batches = [batch for outcome in outcomes for batch in outcome.batches]
        failures = [b.message or b.reason for b in batches if b.snapshot_after is None]
        return Tried(len(batches), failures[-1] if failures else "")


SAFE = "'use-starting-sequence-number', 'false'"
WAYS: tuple[Way, ...] = (
    Stock("stock", "stock, defaults"),
    Stock("stock_safe", "stock, safe setting", SAFE),
    Ours(),
)
