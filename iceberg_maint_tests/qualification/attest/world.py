"""Tables of the session's lake, and what `attest` says of their commits."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.verification import Verification
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.verify import SparkVerifier
from iceberg_maint.loop.attest import Attested, Extent, attest_table
from iceberg_maint_tests.support.context import context_with, spark_access
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.loop.world import SetClock
from iceberg_maint_tests.support.spark.maintained_tables import Lake

FILES = Extent(files=True, max_bytes=None)
METADATA = Extent(files=False, max_bytes=None)
_namespaces = itertools.count()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of the newest commit: its status, the ids of rows lost and gained, and the detail."""

    status: str
    lost: tuple[int, ...]
    gained: tuple[int, ...]
    detail: str

    @classmethod
    def of(cls, found: Verification) -> Verdict:
        sample = found.difference.sample if found.difference else ()
        ids = [(json.loads(r.row)["id"], r.is_lost) for r in sample]
        return cls(
            found.status,
            tuple(sorted(i for i, is_lost in ids if is_lost)),
            tuple(sorted(i for i, is_lost in ids if not is_lost)),
            found.detail,
        )


class AttestWorld:
    """The lake and one ledger."""

    def __init__(self, spark: SparkSession, lake_dir: Path) -> None:
        self.spark, self.lake = spark, Lake(spark, lake_dir)
        self.writers = self.lake.writers
        access = spark_access(verifier=lambda: SparkVerifier(lambda: spark))
        catalogs = {"lake": self.lake.catalog}
        self.context = context_with(
            catalogs, memory_ledger(), SetClock(0), lambda _table, _properties: Policy(), spark=access
        )

    def namespace(self) -> str:
        """A namespace of its own for one fault."""
        name = f"attest{next(_namespaces)}"
        self.spark.sql(f"CREATE NAMESPACE lake.{name}")
        return name

    def attest(self, name: str, extent: Extent = FILES) -> Attested:
        return attest_table(self.lake.catalog.pin(TableId.parse(name)), self.context, extent)

    def newest(self, name: str, extent: Extent = FILES) -> Verdict:
        """The verdict on the newest of the commits that were not attested before."""
        return Verdict.of(self.attest(name, extent).verdicts[-1])
