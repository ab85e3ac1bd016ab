"""The lake of a part of the suite: PostgreSQL and a folder, which writers and maintenance share."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint_tests.support.e2e.lake import rows_at
from iceberg_maint_tests.support.servers.postgres import postgres

PROGRAM = f"{Path(sys.executable).parent / 'iceberg-maint'}"
_CONFIG = """\
ledger: {url}
catalogs:
  lake: {{type: jdbc, uri: "{url}", warehouse: "file://{folder}/warehouse"}}
spark:
  master: local[1]
  conf: {{spark.driver.memory: 640m, spark.sql.shuffle.partitions: "1"}}
defaults:
  readers: [spark, duckdb]
  rewrite_data_files: {{min_input_files: 3, strategy: {strategy}}}
  rewrite_position_delete_files: {{min_input_files: 2}}
  rewrite_manifests: {{max_manifests: 4}}
  expire_snapshots: {{every_seconds: 0, max_snapshot_age_seconds: {age}, min_snapshots_to_keep: {keep}{more}}}
  remove_orphan_files: {{enabled: false}}
  foreign_maintainers: {{mode: {foreign}}}
"""


@dataclass(frozen=True)
class Lake:
    """The catalog `lake` in PostgreSQL with its warehouse in a folder."""

    folder: Path
    url: str

    @property
    def jdbc(self) -> str:
        """The catalog's address for Java."""
        return self.url.replace("postgresql+psycopg2://postgres@", "jdbc:postgresql://") + "?user=postgres"

    def catalog(self) -> SqlCatalog:
        """PyIceberg's catalog."""
        return SqlCatalog("lake", uri=self.url, warehouse=f"file://{self.folder}/warehouse")

    def table(self, name: str) -> Table:
        """The table as it is now."""
        return self.catalog().load_table(name)

    def append(self, name: str, commits: int) -> None:
        """Appends that many files of two rows."""
        rows = pa.table({"id": pa.array([1, 2], pa.int64())})
        written = self.catalog().create_table_if_not_exists(name, rows.schema)
        for _ in range(commits):
            written.append(rows)

    def content(self, name: str) -> tuple[int, int]:
        """The numbers of data files and of rows of a table."""
        scan = self.table(name).scan()
        return len(list(scan.plan_files())), scan.to_arrow().num_rows

    def rows(self, name: str) -> Counter[tuple[object, ...]]:
        """All rows as a multiset, by DuckDB."""
        return rows_at(self.table(name).metadata_location)

    def ids(self, name: str) -> Counter[object]:
        """How often each value of the first column is in the table."""
        ids = Counter[object]()
        for row, count in self.rows(name).items():
            ids[row[0]] += count
        return ids

    def summaries(self, name: str) -> list[Mapping[str, str]]:
        """The summaries of the retained ancestors, the newest first."""
        table = self.table(name)
        found, snapshot = [], table.current_snapshot()
        while snapshot is not None:
            assert snapshot.summary is not None
            found.append(
                {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
            )
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return found

    def config(
        self,
        strategy: str = "columnar",
        keep: int = 10,
        age: int = 0,
        more: str = "",
        foreign: str = "refuse",
    ) -> Path:
        """The program's configuration: `keep` snapshots that are older than `age` seconds stay."""
        file = self.folder / f"{strategy}-{keep}-{age}{'-more' if more else ''}-{foreign}.yaml"
        text = _CONFIG.format(
            url=self.url,
            folder=self.folder,
            strategy=strategy,
            keep=keep,
            age=age,
            more=more,
            foreign=foreign,
        )
        file.write_text(text, "utf-8")
        return file

    def call(self, *arguments: str, config: Path, code: int = 0) -> str:
        """Calls the program. Returns its output. Raises AssertionError with it if the exit code is another one."""
        command = [PROGRAM, *arguments, "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = f"{done.stdout}{done.stderr}"[-3000:]
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}: {said}"
        return done.stdout

    def maintain(self, table: str, config: Path) -> None:
        """Maintains a table until nothing is due."""
        self.call("run", f"lake.{table}", "--until-idle", config=config)

    @contextmanager
    def maintained(self, table: str, configs: Sequence[Path]) -> Iterator[Counter[str]]:
        """Maintains the table in processes of their own during the block, with each configuration in turn. Yields the commits
        of maintenance by operation, which are complete after the block. Raises what a call raised."""
        end, commits, faults = threading.Event(), Counter[str](), list[Exception]()

        def work() -> None:
            seen: set[int] = set()
            turn = 0
            try:
                while not end.is_set():
                    self.call("run", f"lake.{table}", config=configs[turn % len(configs)])
                    turn += 1
                    for snapshot in self.table(table).snapshots():
                        assert snapshot.summary is not None
                        if (
                            snapshot.snapshot_id not in seen
                            and TOKEN_PROPERTY in snapshot.summary.additional_properties
                        ):
                            commits[snapshot.summary.operation.value] += 1
                        seen.add(snapshot.snapshot_id)
            except Exception as fault:  # noqa: BLE001 - raised below
                faults.append(fault)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield commits
        finally:
            end.set()
            thread.join()
        if faults:
            raise faults[0]


@contextmanager
def open_lake(folder: Path) -> Iterator[Lake]:
    """A lake with the namespace `db`, on a server that ends with the block."""
    with postgres() as url:
        lake = Lake(folder, url)
        lake.catalog().create_namespace("db")
        yield lake


def wait_for(done: Callable[[], bool], what: str, seconds: float = 180) -> None:
    """Waits. Raises AssertionError that names `what` when the time is over."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.5)


def expected(shown: Mapping[str, tuple[object, object]]) -> list[str]:
    """A line for each value that is not the wanted one."""
    return [
        f"{name}: {str(is_)[:600]}, expected {str(wanted)[:300]}"
        for name, (is_, wanted) in shown.items()
        if is_ != wanted
    ]


def once(count: int) -> Counter[object]:
    """Each id from 0 on once."""
    return Counter(range(count))


def difference(found: Counter[object], wanted: Counter[object]) -> str:
    """What is missing and what is too much, short."""
    missing, more = wanted - found, found - wanted
    return f"{missing.total()} missing {list(missing)[:5]}, {more.total()} too many {list(more)[:5]}"


NONE = difference(Counter(), Counter())
"""The difference of equal rows."""
