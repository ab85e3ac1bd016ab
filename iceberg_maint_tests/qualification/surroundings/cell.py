"""One surrounding: the steps of the suite by the program's command line, in one process with one JVM.

    python -m iceberg_maint_tests.qualification.surroundings.cell CONFIG

Writes one JSON line per step: its name, its word ("ok", or why not) and its seconds. A step that fails does not stop
the next one. Only the configuration differs between surroundings.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from iceberg_maint.catalog import approved_io as stores
from iceberg_maint.cli import iceberg_maint
from iceberg_maint.cli.context import Session, load_configuration
from iceberg_maint.config import Config
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, cause_classes
from iceberg_maint.errors import EXIT_REFUSED
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.storage import Store
from iceberg_maint.wiring import adapters, spark_session
from iceberg_maint_tests.qualification.surroundings import tables
from iceberg_maint_tests.qualification.surroundings.tables import EQUALITY, V2, V3
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.loop.world import at_clock
from iceberg_maint_tests.support.spark.writers import Writers

OK = "ok"
DAY_MS = 86_400_000
PLANTED, AGAIN = ("orphan-1.parquet", "weird %20+&ü.parquet"), "orphan-2.parquet"
SMALL = 2 * tables.FILES
NO_PARENT = "no parent snapshot"
"""The word of a catalog whose tables keep no snapshot but the current one: there is nothing to attest."""
NO_DOTS = "ICM-156"
FEW = "rewrite_data_files.min_input_files=2"


class LaterClock(adapters.SystemClock):
    """The machine's clock, some days ahead, without an uptime that contradicts it."""

    def __init__(self, days: int) -> None:
        self._ahead_ms = days * DAY_MS

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def uptime(self) -> None:
        return None


class RefusedStep(Exception):
    """The program refuses a step. The text is its code or its reason."""


class Cell:
    """The program in one surrounding."""

    def __init__(self, config: Path) -> None:
        self._path = config
        self.config: Config = load_configuration(config)
        self.bridge = Bridge(spark_session.session(self.config))
        self.spark = self.bridge.spark
        self.tries = 0

    def __call__(self, *arguments: str, code: int = 0, days: int = 0) -> Any:
        """The document of a call of the program with this exit code, so many days from now."""
        session = Session(build=lambda config: later(config, days) if days else adapters.build(config))
        call = [*arguments, "--json", "--config", str(self._path)]
        with ahead(days):
            result = CliRunner().invoke(iceberg_maint, call, obj=session)
        if result.exit_code == EXIT_REFUSED and (word := refusal(json.loads(result.stdout))):
            raise RefusedStep(word)
        if result.exit_code != code:
            raise AssertionError(f"exit {result.exit_code}: {(result.stdout or result.output)[-600:]}")
        return json.loads(result.stdout)

    def operation(self, name: str, operation: str, *more: str) -> Any:
        """The document of one operation on a table."""
        (table,) = self("run", name, "--operation", operation, *more)["tables"]
        (document,) = table["operations"]
        assert document["outcome"] == "IMPROVED", (
            document["outcome"],
            document["reason"],
            document["message"],
        )
        return document

    def check_rows(self, name: str) -> None:
        """Both readers see the rows that the writers left."""
        expected = tables.expected_rows(name)
        self.spark.sql(f"REFRESH TABLE lake.{name}")
        assert tables.rows_by_spark(self.spark, name) == expected, f"Spark reads other rows of {name}"
        properties = self.config.catalogs["lake"].pyiceberg_properties()
        assert tables.rows_by_pyiceberg(properties, name) == expected, f"PyIceberg reads other rows of {name}"

    # the steps

    def tables(self) -> str:
        """The unhealthy tables, by Iceberg's writers."""
        tables.make(Writers(self.bridge))
        for name in (V2, V3):
            self.check_rows(name)
        assert tables.rows_by_spark(self.spark, EQUALITY) == tables.expected_rows(EQUALITY)
        return OK if self._version() == 3 else f"format v{self._version()} in place of v3"

    def doctor(self) -> str:
        """Every check passes, and the first table is read through Spark."""
        checks = self("doctor")["checks"]
        failed = [(c["check"], c["detail"]) for c in checks if c["status"] == "failed"]
        assert not failed, failed
        assert any(c["check"] == "spark catalog lake" and c["status"] == OK for c in checks)
        return OK

    def observe(self) -> str:
        """The health of all tables."""
        health = {t["table"]: t["health"] for t in self("observe")["tables"]}
        numbers = {
            name: (
                h["data_files"],
                h["position_delete_files"],
                h["deletion_vectors"],
                h["equality_delete_files"],
            )
            for name, h in health.items()
        }
        deletes = (0, tables.VECTORS) if self._version() == 3 else (tables.VECTORS, 0)
        assert numbers == {
            f"lake.{V2}": (SMALL, tables.DELETED, 0, 0),
            f"lake.{V3}": (tables.VECTORS, *deletes, 0),
            f"lake.{EQUALITY}": (3, 0, 0, 3),
        }, numbers
        return OK

    def why(self) -> str:
        """The reasons of the first table."""
        document = self("why", V2)
        assert (document["verdict"], document["reason"]) == ("RUN", "small_files"), document["reason"]
        return OK

    def plan(self) -> str:
        """The batches of the first table."""
        document = self("plan", V2)
        assert document["before"]["data_files"] == SMALL
        assert document["after"]["data_files"] == tables.PARTITIONS, document["after"]
        return OK

    def native(self) -> str:
        """One partition by Spark's rows."""
        native = ("--set", "rewrite_data_files.strategy=native")
        done = self.operation(V2, "rewrite_data_files", "--partition", "p=0", *native)
        (batch,) = done["batches"]
        assert (batch["input_files"], batch["output_files"], batch["proof"]["equal"]) == (15, 1, True), batch
        self.check_rows(V2)
        return OK

    def columnar(self) -> str:
        """The other partition by Arrow; where it does not qualify, the reason."""
        columnar = ("--set", "rewrite_data_files.strategy=columnar")
        plan = self("plan", V2, "--partition", "p=1", *columnar)
        batches = [b for o in plan["operations"] if o["plan"] for b in o["plan"]["batches"]]
        (planned,) = [b for b in batches if b["operation"] == "rewrite_data_files"]
        done = self.operation(V2, "rewrite_data_files", "--partition", "p=1", *columnar)
        (batch,) = done["batches"]
        assert (batch["input_files"], batch["output_files"], batch["proof"]["equal"]) == (15, 1, True), batch
        self.check_rows(V2)
        assert ("written by native" in json.dumps(done)) is (planned["strategy"] == "native"), done
        return OK if planned["strategy"] == "columnar" else f"native: {planned['strategy_reason']}"

    def vectors(self) -> str:
        """Deletion vectors are applied by a rewrite."""
        self.operation(V3, "rewrite_data_files")
        self.check_rows(V3)
        return OK

    def equality(self) -> str:
        """Equality deletes become position deletes, then the data files are rewritten."""
        due = ("--set", "rewrite_data_files.equality_delete_max_age_seconds=0")
        self.operation(EQUALITY, "convert_equality_deletes", *due, "--set", "equality_deletes.route=convert")
        self.check_rows(EQUALITY)
        self.operation(EQUALITY, "rewrite_data_files", "--force", "--set", FEW)
        self.check_rows(EQUALITY)
        return OK

    def manifests(self) -> str:
        """Manifests are regrouped."""
        few = ("--set", "rewrite_manifests.max_manifests=1")
        self.operation(V2, "rewrite_manifests", *few)
        self.check_rows(V2)
        return OK

    def verify(self) -> str:
        """The last rewrite is proved again from its files."""
        return self._attested(V3)

    def _attested(self, name: str) -> str:
        document = self("attest", name)
        if not document["commits"]:
            return NO_PARENT
        assert {c["status"] for c in document["commits"]} == {"ATTESTED"}, document
        return OK

    def names(self) -> str:
        """Tables with spaces, other letters and quotes in their names are observed, planned, rewritten and verified. One
        with a dot is refused. The word has the names that the catalog does not take."""
        writers, words = Writers(self.bridge), []
        for kind, (namespace, name) in tables.NAMED.items():
            try:
                drop = tables.make_named(writers, namespace, name)
            except JVM_ERRORS as error:
                words.append(f"{kind}: the catalog raises {cause_classes(error)[0].rpartition('.')[2]}")
                continue
            try:
                word = self._named(f"{namespace}.{name}")
            except RefusedStep as refused:
                word = str(refused)
            drop()
            if word != (NO_DOTS if kind == "dots" else OK):
                words.append(f"{kind}: {word}")
        return "; ".join(words) or OK

    def _named(self, name: str) -> str:
        assert self("plan", f"lake.{name}")["after"]["data_files"] == 1
        (observed,) = self("observe", f"lake.{name}")["tables"]
        assert observed["health"]["small_files"] == 6
        self.operation(f"lake.{name}", "rewrite_data_files")
        return self._attested(f"lake.{name}")

    def expiry(self) -> str:
        """All snapshots but the newest go, and their files into the trash."""
        short = ("--set", "expire_snapshots.max_snapshot_age_seconds=0")
        done = self.operation(
            V2, "expire_snapshots", *short, "--set", "expire_snapshots.min_snapshots_to_keep=1"
        )
        (batch,) = done["batches"]
        assert batch["counts"]["released_files"] >= SMALL + tables.DELETED, batch["counts"]
        self.check_rows(V2)
        return OK

    def orphans(self) -> str:
        """Planted files are found, moved to the trash, restored, moved again and swept."""
        store, location = self._store()
        planted = {f"{location}/data/{name}" for name in PLANTED}
        for path in planted:
            self._plant(path)
        share = ("--set", "remove_orphan_files.max_orphan_ratio=1.0")
        scan = self("orphans", "scan", V3, *share, days=8)
        found = {file["path"] for file in scan["largest"]}
        assert planted <= found, (planted - found, scan["kept"])
        count = scan["orphan_files"]
        trashed = self("orphans", "trash", V3, *share, days=8)
        assert [m["files"] for m in trashed["trash"]] == [count], trashed["trash"]
        assert self._present(store, planted) == set()
        restored = self("orphans", "restore", V3, *share, days=8)
        assert [(r["restored_files"], r["left_files"]) for r in restored["restored"]] == [(count, 0)], (
            restored
        )
        assert self._present(store, planted) == planted
        return OK

    def sweep(self) -> str:
        """What is in the trash for the retention is deleted."""
        store, location = self._store()
        planted = f"{location}/data/{AGAIN}"
        self._plant(planted)
        share = ("--set", "remove_orphan_files.max_orphan_ratio=1.0")
        trash = self("orphans", "trash", V3, *share, days=16)["trash"]
        # What was restored stays where it is.
        (mark,) = (m for m in trash if m["state"] == "retained")
        assert mark["files"] == 1, trash
        assert self._present(store, {planted}) == set()
        self("run", V3, "--operation", "expire_snapshots", days=20)
        swept = self("orphans", "sweep", V3, *share, days=20)
        assert mark["mark_id"] not in {m["mark_id"] for m in swept["trash"]}, swept["trash"]
        left = {f.path for f in store.list(location) if f.path.endswith(AGAIN)}
        assert left == set(), left
        self.check_rows(V3)
        return OK

    def fleet(self) -> str:
        """A run of everything finds nothing that it cannot do, and every row is there."""
        self("run")
        for name in (V2, V3, EQUALITY):
            self.check_rows(name)
        return OK

    def _version(self) -> int:
        context = adapters.build(self.config)
        return context.catalogs["lake"].pin(context.catalogs.find(V3)).format_version

    def _store(self) -> tuple[Store, str]:
        context = adapters.build(self.config)
        state = context.catalogs["lake"].pin(context.catalogs.find(V3))
        catalog = context.catalogs["lake"]
        io = catalog.io_of(state.table)  # type: ignore[attr-defined]
        return stores.open_store(io, state.location), state.location

    def _plant(self, path: str) -> None:
        """A file by Spark's FileIO: a file of a writer that died before its commit."""
        io = self.bridge.load_table(f"lake.{V3}").io()
        stream = io.newOutputFile(path).createOrOverwrite()
        stream.write(bytearray(path.encode()))
        stream.close()

    @staticmethod
    def _present(store: Store, paths: set[str]) -> set[str]:
        folders = {path.rpartition("/")[0] for path in paths}
        return {f.path for folder in folders for f in store.list(folder)} & paths


STEPS: tuple[Callable[[Cell], str], ...] = (
    Cell.tables,
    Cell.doctor,
    Cell.observe,
    Cell.why,
    Cell.plan,
    Cell.native,
    Cell.columnar,
    Cell.vectors,
    Cell.equality,
    Cell.manifests,
    Cell.verify,
    Cell.names,
    Cell.expiry,
    Cell.fleet,
    Cell.orphans,
    Cell.sweep,
)
NAMES = tuple(step.__name__ for step in STEPS)


def refusal(document: Any) -> str:
    """The code or the reason of a refusal in a document."""
    if "error" in document:
        return str(document["error"]["code"])
    if document.get("status") == "UNPROVABLE":
        return "UNPROVABLE"
    operations = [o for t in document.get("tables", ()) for o in t["operations"]]
    operations += [document["operation"]] if "operation" in document else []
    return next((str(o["reason"]) for o in operations if o["outcome"] == "UNSUPPORTED"), "")


def later(config: Config, days: int) -> Context:
    """The context, whose clocks are ahead."""
    context, clock = adapters.build(config), LaterClock(days)
    return changed(
        context,
        clock=clock,
        ledger=at_clock(context.ledger, clock),
        orphan_files=adapters.OrphanScans(config, context.catalogs, clock, context.ledger),
    )


@contextmanager
def ahead(days: int) -> Iterator[None]:
    """The stores' clocks are ahead, too."""
    original = stores.open_store

    def opened(io: Any, location: str) -> Store:
        store = original(io, location)
        now_ms = store.now_ms
        store.now_ms = lambda folder: now_ms(folder) + days * DAY_MS  # type: ignore[method-assign]
        return store

    stores.open_store = opened
    try:
        yield
    finally:
        stores.open_store = original


def word_of(error: BaseException) -> str:
    """One line on a failure."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]


def main(config: str) -> int:
    """Writes a line per step. Exits with 1 if one failed."""
    cell, failed = Cell(Path(config)), 0
    for name, step in zip(NAMES, STEPS, strict=True):
        begin = time.monotonic()
        try:
            word = step(cell)
        except RefusedStep as refused:
            word = str(refused)
        except Exception as error:  # noqa: BLE001 - the table has it
            traceback.print_exc()
            word, failed = word_of(error), 1
        line = {"step": name, "word": word, "seconds": round(time.monotonic() - begin, 1)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    cell.spark.stop()
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
