"""Fixtures that cost something, made once per test process and only when a test asks for them."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
from iceberg_maint.engines.spark.session.java import JavaHome, find_java
from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf
from iceberg_maint_tests.support import hangs, jvm
from iceberg_maint_tests.support.scheduling import SLOW, Scheduling, is_slow, order_of
from iceberg_maint_tests.support.servers.postgres import postgres
from iceberg_maint_tests.support.variants import Variants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parent.parent
CACHE = PROJECT / ".cache"
BEGIN = time.time()
TESTS = PROJECT / "iceberg_maint_tests"
ROOMS_OF_SPARK = ("defs", "demo", "spark")
"""Folders whose tests import Spark or Dagster."""

# A loaded machine is slow, which is no finding.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("project")

os.environ.update(jvm.environment())

# A shell starts background jobs with SIGINT ignored. Dagster would then ignore SIGTERM as well, and programs that
# tests start and terminate would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens have the width of no terminal. Workers of pytest-xdist set $COLUMNS."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def java() -> JavaHome:
    return find_java(os.environ, shim_dir=CACHE / "java")


@pytest.fixture(scope="session")
def jars(java: JavaHome) -> list[Path]:
    """The locked jars of the Spark that is installed, verified."""
    return resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))


@pytest.fixture(scope="session")
def lake_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the session's catalog: `catalog.db` (SQLite) and `warehouse/`. Tests make their own tables in it."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "warehouse").mkdir()
    return folder


@pytest.fixture(scope="session")
def spark_settings(jars: list[Path], lake_dir: Path) -> SparkSettings:
    """The embedded default, small enough for two cores: catalog `lake` on SQLite, local warehouse."""
    return SparkSettings(
        master="local[2]",
        jars=tuple(str(jar) for jar in jars),
        catalogs={
            "lake": catalog_conf(
                "lake",
                "jdbc",
                f"sqlite:///{lake_dir / 'catalog.db'}",
                f"file://{lake_dir / 'warehouse'}",
                {},
            )
        },
        conf={
            "spark.app.name": "iceberg_maint_tests",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        },
        local_dir=_spark_scratch(),
    )


@cache
def _spark_scratch() -> str:
    """A folder that lasts as long as the JVM, which keeps its first one. A process of mutants has many sessions of pytest,
    and pytest deletes the folders of all but the last three."""
    folder = tempfile.mkdtemp(prefix="iceberg-maint-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@pytest.fixture(scope="session")
def spark(java: JavaHome, spark_settings: SparkSettings) -> Iterator[SparkSession]:
    """The one Spark session of the test process. Static settings hold for all tests; no test may stop it."""
    from iceberg_maint.engines.spark.session.session import build_session

    os.environ["JAVA_HOME"] = str(java.path)
    session = build_session(spark_settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """SQLAlchemy address of a throw-away PostgreSQL on a loopback port; tests create databases or schemas in it."""
    with postgres() as url:
        yield url


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only what needs no Spark, server or seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Variants())
    if config.getoption("--fast"):
        config.option.markexpr = " and ".join(f"not {mark}" for mark in (*SLOW, "variant"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--fast` modules that are marked as slow are not imported: they may need what is not installed."""
    if not config.getoption("--fast"):
        return None
    if collection_path.is_dir():
        return (collection_path.parent == TESTS and collection_path.name in ROOMS_OF_SPARK) or None
    return (collection_path.suffix == ".py" and is_slow(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests of a module marked `in_order`, which tell one story, back in its order after the shuffle;
    of several workers' tests the long ones come first, that none works alone at the end."""
    places: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        if item.get_closest_marker("in_order"):
            places.setdefault(item.location[0], []).append(i)
    for module in places.values():
        ordered = sorted((items[i] for i in module), key=lambda item: item.location[1] or 0)
        for place, item in zip(module, ordered, strict=True):
            items[place] = item
    if hasattr(config, "workerinput"):
        items.sort(key=order_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Hands out the tests in their order and whole modules where these share what they set up."""
    return Scheduling(config, log)


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """A test that does not end leaves the stacks of its threads and of its JVM in a file."""
    return hangs.set_timer(item, settings) if settings.method == "thread" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows these stacks at the end of the run, those of lost workers as well."""
    hangs.report(terminalreporter, BEGIN)
