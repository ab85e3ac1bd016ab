"""`doctor`: one line per check, and the exit code of the first that fails."""

from __future__ import annotations

import errno
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.cli.checks.catalog_checks import _probe
from iceberg_maint.config import load_config
from iceberg_maint.core.decisions.statement_hazards import CannotError
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.spark_memory import DeclaredMemory
from iceberg_maint.errors import (
    ConfigurationError,
    IcebergMaintError,
    RefusedError,
    UnreadableTableError,
    unwritable_home,
)
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.machine.bounded_calls import CallLimits
from iceberg_maint.ports.engine import EnvironmentFailedError
from iceberg_maint_tests.cli.conftest import NOW_MS, Lake
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog

pytestmark = pytest.mark.seconds

SICK = TableId.parse("lake.db.sick")


@pytest.fixture(autouse=True)
def still_clock_no_dagster_no_jvm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(lake.context.ledger.registry, "now_ms", lambda: NOW_MS)
    monkeypatch.setattr(
        "iceberg_maint.wiring.spark_session.spark_versions", lambda _config: lake.engine.versions()
    )
    monkeypatch.setattr(
        "iceberg_maint.wiring.spark_session.spark_reads", lambda _config, _table, _location: "HadoopFileIO"
    )


def checks(lake: Lake, *arguments: str, exit_code: int = 0) -> dict[str, tuple[str, str]]:
    document = lake.json("doctor", *arguments, exit_code=exit_code)
    return {c["check"]: (c["status"], c["detail"]) for c in document["checks"]}


def warehouse_of(lake: Lake) -> Path:
    return Path(str(lake.config.catalogs["lake"].warehouse).removeprefix("file://"))


def make_warehouse(lake: Lake, *, with_table: bool) -> None:
    """Makes the folder of the warehouse, with a table of the catalog in it or none."""
    warehouse_of(lake).mkdir(parents=True)
    if with_table:
        table = lake.catalog.content[SICK]
        state = replace(table.state, location=f"file://{warehouse_of(lake)}/db/sick")
        lake.catalog.put(replace(table, state=state))


def test_sound_lake_passes_every_check(lake: Lake) -> None:
    make_warehouse(lake, with_table=True)
    found = checks(lake)
    assert {status for status, _ in found.values()} == {"ok"}
    assert list(found) == [
        "python",
        "packages",
        "configuration",
        "java",
        "jars",
        "class archive",
        "catalog lake",
        "metadata of lake.db.healthy",
        "warehouse of lake",
        "ledger",
        "policies",
        "owners",
        "clock",
        "spark",
        "spark catalog lake",
    ]
    assert found["catalog lake"][1].endswith("2 tables")
    assert found["spark"][1] == "iceberg 1.12.0, spark 4.1.4"
    assert found["spark catalog lake"][1] == "lake.db.healthy read by HadoopFileIO"


def test_spark_can_be_left_out(lake: Lake) -> None:
    assert "spark" not in checks(lake, "--no-spark")


def test_unreachable_catalog_fails_with_its_exit_code_and_the_rest_is_checked(lake: Lake) -> None:
    lake.catalog.unreachable = True
    found = checks(lake, "--no-spark", exit_code=2)
    assert found["catalog lake"][0] == "failed"
    assert found["catalog lake"][1].startswith("ICM-104")
    assert found["ledger"][0] == "ok"


def test_pattern_that_matches_no_table_is_a_warning(lake: Lake) -> None:
    lake.configure("tables: {'db.sik': {paused: true}, 'db.si*': {paused: true}}\n")
    result = lake.json("doctor", "--no-spark")
    warnings = [
        c["detail"] for c in result["checks"] if (c["check"], c["status"]) == ("configuration", "warning")
    ]
    assert warnings == ["tables.'db.sik' matches no table."]


def test_pattern_of_a_catalog_among_several_that_matches_no_table_is_a_warning(
    lake: Lake, tmp_path: Path
) -> None:
    more = FakeCatalog("more", [])
    lake.context = changed(lake.context, catalogs={"lake": lake.catalog, "more": more})
    file = tmp_path / "two.yaml"
    file.write_text(
        "catalogs:\n"
        "  lake: {type: rest, uri: 'http://a'}\n"
        "  more: {type: rest, uri: 'http://b'}\n"
        "tables: {lake.db.sick: {paused: true}, lake.db.sik: {}, 'more.*': {}, db.sick: {}}\n"
    )
    lake.reconfigure(load_config(file, {}, ""))

    def warnings(exit_code: int) -> list[str]:
        found = lake.json("doctor", "--no-spark", exit_code=exit_code)["checks"]
        return [c["detail"] for c in found if c["status"] == "warning"]

    unused = ["tables.'lake.db.sik' matches no table."]
    assert warnings(0) == [
        *unused,
        "tables.'more.*' matches no table.",
        "tables.'db.sick' matches no table.",
    ]
    more.unreachable = True
    assert warnings(2) == unused


def test_store_that_denies_access_is_one_failure_and_not_one_of_each_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_table: TableId, _known: object = None) -> Any:
        raise UnreadableTableError("ICM-125", "AWS Error ACCESS_DENIED.", "correct the credentials.")

    monkeypatch.setattr(lake.catalog, "pin", denied)
    found = checks(lake, exit_code=3)
    assert [name for name, (status, _) in found.items() if status == "failed"] == [
        "metadata of lake.db.healthy"
    ]
    assert found["metadata of lake.db.healthy"][1] == (
        "ICM-125 AWS Error ACCESS_DENIED. Fix: correct the credentials. "
        "Until then doctor leaves out the other checks of the tables of lake."
    )
    assert "ledger" in found


def test_catalog_whose_database_has_tables_under_another_name_is_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.catalog.content.clear()
    monkeypatch.setattr(
        "iceberg_maint.wiring.adapters.stored_names", lambda _catalogs, _name: ("prod", "test")
    )
    document = lake.json("doctor", "--no-spark")
    warnings = [c["detail"] for c in document["checks"] if c["status"] == "warning"]
    assert warnings == [
        (
            "Its database has tables of another catalog name: prod, test. JDBC catalogs store the name. "
            "Fix: rename catalogs.lake to that name."
        )
    ]


def test_home_that_cannot_be_written_is_one_failed_check_with_the_variable(
    lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "a file").touch()
    home = tmp_path / "a file" / "home"
    lake.reconfigure(replace(lake.config, home=home))
    found = checks(lake, "--no-spark", exit_code=2)
    assert [name for name, (status, _) in found.items() if status == "failed"] == ["home"]
    assert found["home"][1] == (
        f"ICM-100 {home} cannot be written: Not a directory. Fix: set ICEBERG_MAINT_HOME to a folder that this "
        "user can write. By default it is beside the configuration."
    )


@pytest.mark.parametrize(
    ("number", "code", "fix"),
    [
        (errno.ENOSPC, "ICM-176", "free space there, or set ICEBERG_MAINT_HOME to a folder of another"),
        (errno.EDQUOT, "ICM-176", "raise the quota, free space there, or set ICEBERG_MAINT_HOME to a folder"),
        (errno.EROFS, "ICM-176", "make the file system writable, or set ICEBERG_MAINT_HOME to a folder of"),
        (errno.EMFILE, "ICM-176", "raise the limit of open files of this process (ulimit -n)."),
        (errno.EACCES, "ICM-100", "set ICEBERG_MAINT_HOME to a folder that this user can write."),
    ],
)
def test_home_that_cannot_be_written_has_the_fix_of_its_error(number: int, code: str, fix: str) -> None:
    why = os.strerror(number)
    error = str(unwritable_home("/home", OSError(number, why)))
    assert error.startswith(f"{code} /home cannot be written: {why}. Fix: {fix}")


def test_ledger_that_cannot_be_written_fails(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql_ledger(f"sqlite:///{tmp_path}/ledger.db").registry.now_ms()
    monkeypatch.chdir(tmp_path)  # a URI is no path, and a folder by its name is made here
    reading = sql_ledger(f"sqlite:///file:{tmp_path}/ledger.db?mode=ro&uri=true")
    monkeypatch.setattr(reading.registry, "now_ms", lambda: NOW_MS)
    lake.context = changed(lake.context, ledger=reading)
    status, detail = checks(lake, "--no-spark", exit_code=2)["ledger"]
    assert (status, detail[:7]) == ("failed", "ICM-128")
    reading.close()


def test_ledger_that_cannot_be_opened_fails_once_and_ends_no_check(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("no database " * 100)
    lake.context = changed(lake.context, ledger=sql_ledger(f"sqlite:///{tmp_path}/broken.db"))
    found = checks(lake, "--no-spark", exit_code=2)
    assert [name for name, (_, detail) in found.items() if "ICM-128" in detail] == ["ledger"]
    assert list(found)[-2:] == ["ledger", "policies"]


@pytest.mark.parametrize(
    ("text", "properties", "says"),
    [
        (
            "tables: {'*sick': {paused: true}, 'lake*': {paused: false}}\n",
            {},
            "match lake.db.sick equally well",
        ),
        ("", {"maintenance.mode": "rest"}, "lake.db.sick: table property maintenance.mode is 'rest'"),
    ],
)
def test_wrong_policy_of_any_table_fails(
    lake: Lake, text: str, properties: dict[str, str], says: str
) -> None:
    sick = lake.catalog.content[SICK]
    own = {**sick.state.properties, **properties}
    lake.catalog.put(replace(sick, state=replace(sick.state, properties=own)))
    lake.configure(text)
    status, detail = checks(lake, "--no-spark", exit_code=2)["policies"]
    assert status == "failed"
    assert says in detail


def test_wrong_configuration_is_the_check_that_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object) -> Any:
        raise ConfigurationError("ICM-100", "catalogs is missing.", "write it.")

    monkeypatch.setattr("iceberg_maint.cli.context.Session.config", broken)
    found = checks(lake, exit_code=2)
    assert found["configuration"] == ("failed", "ICM-100 catalogs is missing. Fix: write it.")
    assert list(found) == ["python", "packages", "configuration"]


def test_clocks_that_disagree_fail_with_every_time_and_the_fix(lake: Lake) -> None:
    lake.clock.ms += 3_600_000
    status, told = checks(lake, "--no-spark", exit_code=3)["clock"]
    assert status == "failed"
    assert told == (
        "ICM-115 every table: the clocks of this machine and of the ledger are 3600 s apart. this machine "
        "2027-01-15T09:00:00+00:00, ledger 2027-01-15T08:00:00+00:00, last-updated-ms "
        "2027-01-15T08:00:00+00:00; the limit is 300 s; nothing is removed. Fix: correct the wrong clock "
        "by NTP. If the clock of this machine was corrected since then, run "
        "'iceberg-maint doctor --accept-clock'."
    )


def test_clock_that_moved_backwards_fails_until_a_person_accepts_it(lake: Lake) -> None:
    lake.context.ledger.leases.keep_clock_reading(None, None, NOW_MS + 30 * 86_400_000)
    status, told = checks(lake, "--no-spark", exit_code=3)["clock"]
    assert (status, "the ledger holds a time 2592000 s later" in told) == ("failed", True)
    assert checks(lake, "--no-spark", "--accept-clock")["clock"] == (
        "ok",
        "0.0 s between this machine and the ledger",
    )


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert _probe(tmp_path.as_uri()) == f"{tmp_path}: written, read, deleted"
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "a file"
    file.touch()
    with pytest.raises(RefusedError, match="ICM-125"):
        _probe(f"file://{file}")
    (odd := tmp_path / "a#b%20?c").mkdir()
    assert _probe(f"file://{odd}") == f"{odd}: written, read, deleted"
    assert _probe("s3://bucket/x") == "s3://bucket/x: not probed; the rights are probed on a table"


@pytest.mark.parametrize(
    ("text", "status", "exit_code"),
    [
        ("defaults: {mode: advise}\n", "warning", 0),
        ("defaults: {mode: advise}\ntables: {'db.healthy': {mode: act}}\n", "failed", 3),
    ],
)
def test_warehouse_that_cannot_be_written_is_enough_to_advise(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, text: str, status: str, exit_code: int
) -> None:
    def denied(_warehouse: str) -> str:
        raise RefusedError(
            "ICM-125", "/lake cannot be written: Permission denied.", "let the user write there."
        )

    lake.configure(text)
    monkeypatch.setattr("iceberg_maint.cli.checks.catalog_checks._probe", denied)
    assert checks(lake, "--no-spark", exit_code=exit_code)["warehouse of lake"][0] == status


def test_warehouse_that_does_not_answer_fails_its_check(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(
        "iceberg_maint.cli.checks.catalog_checks._probe", lambda _warehouse: str(never.wait())
    )
    monkeypatch.setattr(lake.catalog, "cycle_limits", CallLimits(call_seconds=1))
    found = checks(lake, "--no-spark", exit_code=1)
    never.set()
    assert found["warehouse of lake"] == (
        "failed",
        (
            "ICM-179 the warehouse of catalog 'lake' gave no answer within 1 seconds (catalogs.lake.read_timeout_seconds). Fix: look "
            "for what does not answer: the catalog, the store, a network file system; or raise catalogs.lake.read_timeout_seconds."
        ),
    )
    assert [name for name, (status, _) in found.items() if status == "failed"] == ["warehouse of lake"]


def test_properties_are_read_of_some_tables_only(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks(lake, "--no-spark")["policies"] == ("ok", "2 tables")
    monkeypatch.setattr("iceberg_maint.cli.checks.catalog_checks.PROPERTIES_READ", 1)
    assert checks(lake, "--no-spark")["policies"] == ("ok", "2 tables; properties of the first 1 read")


def test_dagster_home_that_is_no_instance_is_reported_with_a_code(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "none"))
    status, detail = checks(lake, "--no-spark", exit_code=2)["dagster"]
    assert status == "failed"
    assert detail.startswith(f"ICM-100 DAGSTER_HOME {tmp_path}/none is no usable Dagster instance: ")
    assert "is not a directory or does not exist" in detail


def test_dagster_instance_without_run_monitoring_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\nrun_monitoring: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    status, detail = checks(lake, "--no-spark", exit_code=3)["dagster"]
    assert (status, detail[:7]) == ("failed", "ICM-117")


def test_spark_that_does_not_start_is_one_failed_check(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_config: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("iceberg_maint.wiring.spark_session.spark_versions", broken)
    (failed,) = (c for c in lake.json("doctor", exit_code=1)["checks"] if c["status"] == "failed")
    assert (failed["check"], failed["detail"], failed["code"]) == ("spark", "OSError: no space left", None)


@pytest.mark.parametrize(("mode", "status", "exit_code"), [("act", "failed", 1), ("advise", "warning", 0)])
def test_table_that_spark_cannot_read_fails_unless_all_tables_are_only_advised(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: str, status: str, exit_code: int
) -> None:
    def lacks_a_jar(_config: object, table: TableId, _location: str) -> str:
        raise IcebergMaintError("ICM-133", f"Spark cannot read {table}.", "list the jar.")

    monkeypatch.setattr("iceberg_maint.wiring.spark_session.spark_reads", lacks_a_jar)
    monkeypatch.setattr("iceberg_maint.cli.checks.machine.only_advises", lambda *_: mode == "advise")
    found = checks(lake, exit_code=exit_code)["spark catalog lake"]
    advice = " Mode advise does not need it." if mode == "advise" else ""
    assert found == (status, f"ICM-133 Spark cannot read lake.db.healthy. Fix: list the jar.{advice}")


@pytest.mark.parametrize(
    ("weak", "status", "code"),
    [(None, "ok", None), ("BadRequestException: Malformed request", "warning", "ICM-137")],
)
def test_rest_catalog_that_takes_no_requirements_is_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, weak: str | None, status: str, code: str | None
) -> None:
    catalogs = {name: replace(c, type="rest") for name, c in lake.config.catalogs.items()}
    lake.reconfigure(replace(lake.config, catalogs=catalogs))
    monkeypatch.setattr("iceberg_maint.wiring.spark_session.weak_requirements", lambda _config, _table: weak)
    (shown,) = (c for c in lake.json("doctor")["checks"] if c["check"] == "requirements of lake")
    assert (shown["status"], shown["code"]) == (status, code)
    assert (weak or "a commit is refused if") in shown["detail"]


@pytest.mark.parametrize(
    ("problem", "status", "detail"),
    [
        ("", "ok", "their Python has the packages of the strategy columnar"),
        (
            "the Python of the executors cannot import pyarrow",
            "warning",
            (
                "the Python of the executors cannot import pyarrow. Spark writes the batches itself (strategy native). "
                "Fix: set spark.pyspark.python, and ship the packages by spark.archives or the image "
                "(docs/how-to/cluster.md)."
            ),
        ),
    ],
)
def test_executors_of_a_cluster_without_packages_are_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, problem: str, status: str, detail: str
) -> None:
    monkeypatch.setattr("iceberg_maint.wiring.spark_session.executors_problem", lambda _config: problem)
    assert "executors" not in checks(lake)
    lake.configure("spark: {master: 'spark://h:7077'}\n")
    assert checks(lake)["executors"] == (status, detail)


def test_executors_of_a_cluster_and_tables_that_ran_out_of_their_memory_are_reported(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.json("observe", "db.sick")
    uses = (MemoryUse(300 * 1024**2, 200 * 1024**2, 2, 1, exceeded=True),)
    monkeypatch.setattr(lake.context.ledger.records, "memory_uses", lambda _uuid, _limit: uses)
    declared = DeclaredMemory(1024**3, 2 * 1024**3, slots=2)
    spark = lake.context.engine.spark
    lake.context = changed(lake.context, spark=replace(spark, memory=declared))
    reported = [c for c in lake.json("doctor")["checks"] if c["check"] == "spark memory"]
    assert [(c["status"], c["code"], c["detail"]) for c in reported] == [
        (
            "ok",
            None,
            "executors of 1024m run 2 at once; equality deletes get 218m of it by default",
        ),
        (
            "warning",
            "ICM-124",
            (
                "lake.db.sick: the last batch with equality deletes ran out of memory at an estimate of 300m. Fix: raise "
                "spark.executor.memory under spark.conf, or equality_deletes.memory if it is set."
            ),
        ),
    ]
    lake.context = changed(lake.context, spark=replace(spark, memory=replace(declared, is_local=True)))
    (only,) = [c["detail"] for c in lake.json("doctor")["checks"] if c["check"] == "spark memory"]
    assert "raise spark.driver.memory under" in only


def test_archive_of_classes_is_written_and_named_with_its_size(lake: Lake) -> None:
    status, detail = checks(lake, "--no-spark")["class archive"]
    found = re.fullmatch(r"(/\S+/classes/[0-9a-f]{24}-(\d+)\.jsa) \(([\d,]+) bytes\)", detail)
    assert (status, found is not None) == ("ok", True), detail
    assert found is not None
    assert Path(found[1]).stat().st_size == int(found[2]) == int(found[3].replace(",", ""))


def test_warehouse_that_is_missing_though_the_catalog_has_tables_is_a_warning(lake: Lake) -> None:
    found = checks(lake, "--no-spark")["warehouse of lake"]
    assert found == (
        "warning",
        f"{warehouse_of(lake)}: does not exist. Fix: correct catalogs.lake.warehouse; lake.db.healthy was not made there.",
    )


def test_warehouse_without_a_table_of_its_catalog_is_a_warning(lake: Lake) -> None:
    make_warehouse(lake, with_table=False)
    folder, location = (
        warehouse_of(lake),
        lake.catalog.content[TableId.parse("lake.db.healthy")].state.location,
    )
    status, detail = checks(lake, "--no-spark")["warehouse of lake"]
    where = f"file://{folder}: no table of the catalog is there; lake.db.healthy is at {location}."
    fix = "Fix: set catalogs.lake.warehouse to the folder of its tables."
    assert (status, detail) == ("warning", f"{where} {fix}")


def test_table_that_cannot_be_read_fails_its_own_check_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_warehouse(lake, with_table=True)
    broken, pin = (
        UnreadableTableError("ICM-101", f"cannot load {SICK}.", "restore the file."),
        lake.catalog.pin,
    )

    def pinned(table: TableId) -> Any:
        if table == SICK:
            raise broken
        return pin(table)

    monkeypatch.setattr(lake.catalog, "pin", pinned)
    found = checks(lake, "--no-spark", exit_code=3)
    assert {n: f for n, f in found.items() if f[0] == "failed"} == {
        f"metadata of {SICK}": ("failed", str(broken))
    }


class Elsewhere:
    """An engine of statements. `version_of` and `find` answer, or raise what they are set to."""

    def __init__(self, error: Exception | None = None, unseen: Exception | None = None) -> None:
        self.error, self.unseen = error, unseen
        self.found: list[tuple[str, int, float | None]] = []

    def version(self, _catalog: str) -> str:
        if self.error is not None:
            raise self.error
        return "476"

    def find(self, table: TableId, snapshot_id: int, seconds: float | None = None) -> None:
        if table.name == "healthy":
            raise CannotError("it has lower-case names only")
        self.found.append((str(table), snapshot_id, seconds))
        if self.unseen is not None:
            raise self.unseen


def with_engine(lake: Lake, engine: Elsewhere) -> None:
    lake.context = changed(lake.context, elsewhere={"trino": engine})


def test_engine_is_asked_for_its_version_and_for_a_table_with_its_snapshot(lake: Lake) -> None:
    engine = Elsewhere()
    with_engine(lake, engine)
    snapshot = lake.catalog.content[SICK].state.snapshot
    assert snapshot is not None
    assert checks(lake, "--no-spark")["engine trino, catalog lake"] == (
        "ok",
        f"476, shows lake.db.sick with snapshot {snapshot.snapshot_id}",
    )
    assert engine.found == [("lake.db.sick", snapshot.snapshot_id, 30.0)]


@pytest.mark.parametrize(
    "engine",
    [
        Elsewhere(error=EnvironmentFailedError("Trino at http://h does not answer.", "start it.")),
        Elsewhere(error=RefusedError("ICM-103", "Trino at http://h has version 400.", "upgrade Trino.")),
        Elsewhere(unseen=EnvironmentFailedError("Trino at http://h does not show lake.db.sick.", "set it.")),
    ],
)
def test_engine_that_cannot_be_used_fails_with_its_fix_and_the_rest_is_checked(
    lake: Lake, engine: Elsewhere
) -> None:
    with_engine(lake, engine)
    error = engine.error or engine.unseen
    assert isinstance(error, IcebergMaintError)
    found = checks(lake, "--no-spark", exit_code=error.exit_code)
    assert found["engine trino, catalog lake"] == ("failed", str(error))
    assert found["clock"][0] == "ok"


def test_catalog_that_no_statement_can_name_is_a_warning(lake: Lake) -> None:
    with_engine(lake, Elsewhere(error=CannotError("the name 'a-b' is not plain")))
    assert checks(lake, "--no-spark")["engine trino, catalog lake"] == (
        "warning",
        "It cannot maintain the catalog: the name 'a-b' is not plain.",
    )


def test_catalog_whose_tables_do_not_name_the_engine_is_not_looked_for_there(lake: Lake) -> None:
    more = FakeCatalog(
        "more",
        [
            replace(
                lake.catalog.content[SICK],
                state=replace(lake.catalog.content[SICK].state, table=TableId.parse("more.db.sick")),
            )
        ],
    )
    engine = Elsewhere()
    file = lake.home / "two.yaml"
    file.write_text(
        "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"
        "  more: {type: jdbc, uri: 'sqlite:////x/d.db', warehouse: 'file:///x/w'}\n"
        "engines: {trino: {uri: 'http://127.0.0.1:1'}}\n"
        "tables: {more.db.sick: {rewrite_data_files: {engines: [trino]}}}\n"
    )
    lake.context = changed(
        lake.context, catalogs={"lake": lake.catalog, "more": more}, elsewhere={"trino": engine}
    )
    lake.reconfigure(load_config(file, {}, ""))
    found = checks(lake, "--no-spark")
    assert [name for name in found if name.startswith("engine")] == ["engine trino, catalog more"]
