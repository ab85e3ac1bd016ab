"""Sessions: what is pinned, what is refused, how a catalog's settings are derived."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyspark
import pytest
from py4j.java_gateway import CallbackServer
from py4j.protocol import Py4JError

from iceberg_maint.engines.spark.session import session, settings
from iceberg_maint.engines.spark.session.jars import load_lock
from iceberg_maint.engines.spark.session.java import JavaHome
from iceberg_maint.engines.spark.session.session import (
    build_session,
    check_conf,
    check_session,
    check_versions,
    versions,
)
from iceberg_maint.engines.spark.session.settings import (
    CATALOG_CLASS,
    SparkSettings,
    arguments_of,
    catalog_conf,
    is_plain,
    spark_conf,
)
from iceberg_maint.errors import ConfigurationError, IcebergMaintError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAFE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalog.lake": CATALOG_CLASS,
    "spark.sql.catalog.lake.cache-enabled": "false",
}
TESTED = {"spark": "4.1.4", "scala": "2.13.17", "iceberg": "1.12.0", "java": "17.0.12"}


def test_catalog_conf_sqlite_url_becomes_jdbc_without_a_journal_mode() -> None:
    assert catalog_conf("lake", "jdbc", "sqlite:////data/catalog.db", "file:///data/wh", {"a": "b"}) == {
        "spark.sql.catalog.lake": CATALOG_CLASS,
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:/data/catalog.db?busy_timeout=30000",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": "file:///data/wh",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.lake.a": "b",
    }


def test_catalog_conf_postgresql_url_hands_user_and_password_over_apart() -> None:
    conf = catalog_conf("pg", "jdbc", "postgresql+psycopg2://me:p%40ss@db.local:6543/lake", None, {})
    assert conf["spark.sql.catalog.pg.uri"] == "jdbc:postgresql://db.local:6543/lake"
    assert conf["spark.sql.catalog.pg.jdbc.user"] == "me"
    assert conf["spark.sql.catalog.pg.jdbc.password"] == "p@ss"


@pytest.mark.parametrize("kind", ["rest", "hive", "glue"])
def test_catalog_conf_other_kinds_pass_the_uri_on(kind: str) -> None:
    conf = catalog_conf("c", kind, "http://127.0.0.1:8181", "wh", {})
    assert (conf["spark.sql.catalog.c.type"], conf["spark.sql.catalog.c.uri"]) == (
        kind,
        "http://127.0.0.1:8181",
    )


@pytest.mark.parametrize(
    ("conf", "plain"),
    [
        ({"spark.sql.catalog.c": CATALOG_CLASS, "spark.sql.catalog.d.hadoop.a": "b"}, True),
        ({"spark.sql.catalog.c": CATALOG_CLASS, "spark.sql.catalog.c.hadoop.a": "b"}, False),
        ({"spark.sql.catalog.c": "org.example.Catalog"}, False),
        ({}, False),
    ],
)
def test_catalog_is_plain_if_it_is_iceberg_s_and_has_no_settings_of_hadoop(
    conf: dict[str, str], plain: bool
) -> None:
    assert is_plain(("c", conf)) is plain


@pytest.mark.parametrize(
    ("kind", "uri", "properties", "code"),
    [
        ("hadoop", None, {}, "ICM-106"),
        ("nessie", None, {}, "ICM-100"),
        ("jdbc", None, {}, "ICM-100"),
        ("jdbc", "mysql://x/y", {}, "ICM-100"),
        ("rest", "http://x", {"cache-enabled": "true"}, "ICM-105"),
    ],
)
def test_catalog_conf_unsafe_catalog_is_refused(
    kind: str, uri: str | None, properties: dict[str, str], code: str
) -> None:
    with pytest.raises(IcebergMaintError) as refusal:
        catalog_conf("c", kind, uri, None, properties)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.adaptive.enabled", "true"),
        ("spark.speculation", "true"),
        ("spark.sql.session.timeZone", "Europe/Berlin"),
        ("spark.jars", "/opt/jars/iceberg-aws-bundle.jar"),
        ("spark.jars.packages", "org.example:x:1"),
        ("spark.testing", "true"),
    ],
)
def test_spark_conf_setting_against_a_pin_is_refused(key: str, value: str) -> None:
    with pytest.raises(IcebergMaintError) as refusal:
        spark_conf(SparkSettings("local[1]", (), {}, {key: value}))
    assert refusal.value.code == "ICM-105"
    assert key in refusal.value.message
    assert refusal.value.message.endswith(".")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "lake.example"])
@pytest.mark.parametrize("key", ["spark.driver.bindAddress", "spark.driver.host"])
def test_spark_conf_local_master_that_listens_to_others_is_refused(key: str, address: str) -> None:
    with pytest.raises(IcebergMaintError) as refusal:
        spark_conf(SparkSettings("local[1]", (), {}, {key: address}))
    assert refusal.value.code == "ICM-127"
    assert f"{key} = {address}" in refusal.value.message
    assert refusal.value.message.endswith(".")


@pytest.mark.parametrize(
    ("master", "address"),
    [("local[1]", "127.0.0.1"), ("local[*]", "::1"), ("local", "localhost"), ("spark://h:7077", "10.0.0.7")],
)
def test_spark_conf_loopback_or_a_cluster_s_own_address_is_fine(master: str, address: str) -> None:
    conf = spark_conf(SparkSettings(master, (), {}, {"spark.driver.bindAddress": address}))
    assert conf["spark.driver.bindAddress"] == address


def test_arguments_of_the_jvm_hold_what_it_starts_with_and_no_secret() -> None:
    catalog = catalog_conf("pg", "jdbc", "postgresql://me:pw-1@db/lake", None, {"s3.secret-access-key": "k"})
    conf = spark_conf(
        SparkSettings(
            "local[1]",
            ("/a.jar",),
            {"pg": catalog},
            {
                "spark.hadoop.fs.s3a.access.key": "AKIA",
                "spark.ssl.keyPassword": "pw-2",
                "spark.example": "a tok-3",
                "spark.driver.memory": "1g",
            },
        )
    )
    seen = arguments_of(conf, {"tok-3"})
    assert {
        "spark.driver.memory",
        "spark.driver.extraJavaOptions",
        "spark.jars",
        "spark.master",
        "spark.driver.bindAddress",
        "spark.sql.extensions",
        "spark.redaction.regex",
    } <= set(seen)
    withheld = set(conf) - set(seen)
    assert {k for k in withheld if not k.startswith("spark.sql.catalog.pg")} == {
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.parquet.page.verify-checksum.enabled",
        "spark.ssl.keyPassword",
        "spark.example",
    }
    assert not any(k.startswith("spark.sql.catalog.") for k in seen)


@pytest.mark.parametrize("secret", ["k", "admin", "a"])
def test_settings_read_at_the_start_stay_arguments_whatever_short_secret_occurs_in_them(secret: str) -> None:
    given = {"spark.driver.memory": "3g", "spark.driver.extraClassPath": "/home/admin/kafka/a"}
    settings = SparkSettings("local[1]", ("/home/admin/iceberg-spark.jar",), {}, given, "/home/admin/spark")
    arguments = arguments_of(spark_conf(settings), {secret})
    assert arguments["spark.jars"] == "/home/admin/iceberg-spark.jar"
    assert arguments["spark.local.dir"] == "/home/admin/spark"
    assert arguments["spark.master"] == "local[1]"
    assert {key: arguments[key] for key in given} == given


def test_password_in_an_address_that_is_read_at_the_start_is_refused() -> None:
    conf = spark_conf(SparkSettings("local[1]", (), {}, {"spark.files": "https://me:pw-4@host/f"}))
    with pytest.raises(ConfigurationError, match=r"ICM-118 spark.conf.spark.files is an address") as refusal:
        arguments_of(conf, {"pw-4"})
    assert "pw-4" not in str(refusal.value)


def test_spark_conf_writes_an_event_log_only_on_request_and_redacts_it() -> None:
    assert "spark.eventLog.enabled" not in spark_conf(SparkSettings("local[1]", (), {}))
    conf = spark_conf(SparkSettings("local[1]", (), {}, {"spark.eventLog.enabled": "true"}))
    assert conf["spark.eventLog.enabled"] == "true"
    assert re.search(conf["spark.redaction.regex"], "spark.sql.catalog.lake.s3.secret-access-key")
    with pytest.raises(IcebergMaintError, match="ICM-105"):
        spark_conf(SparkSettings("local[1]", (), {}, {"spark.redaction.regex": "nothing"}))


def test_spark_conf_user_setting_beats_a_default() -> None:
    conf = spark_conf(SparkSettings("local[1]", ("/a.jar", "/b.jar"), {}, {"spark.driver.memory": "9g"}))
    assert conf["spark.driver.memory"] == "9g"
    assert conf["spark.jars"] == "/a.jar,/b.jar"
    assert conf["spark.speculation"] == "false"


@pytest.mark.parametrize(
    "change",
    [
        {"spark": "4.0.5"},
        {"spark": "4.2.0"},
        {"scala": "2.12.18"},
        {"iceberg": "1.11.0"},
        {"java": "24.0.1"},
        {"java": "11.0.2"},
    ],
)
def test_check_versions_untested_version_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(IcebergMaintError) as refusal:
        check_versions({**TESTED, **change})
    assert refusal.value.code == "ICM-103"
    assert refusal.value.message.endswith(".")


@pytest.mark.parametrize("found", [TESTED, {**TESTED, "spark": "3.5.9", "scala": "2.12.18"}])
def test_check_versions_tested_pair_is_accepted(found: dict[str, str]) -> None:
    check_versions(found)


@pytest.mark.parametrize(
    ("change", "testing", "code"),
    [
        ({}, True, "ICM-105"),
        ({"spark.sql.adaptive.enabled": "true"}, False, "ICM-105"),
        ({"spark.speculation": "true"}, False, "ICM-105"),
        ({"spark.sql.session.timeZone": "Asia/Tokyo"}, False, "ICM-105"),
        ({"spark.sql.catalog.lake.cache-enabled": "true"}, False, "ICM-105"),
        ({"spark.sql.catalog.other": CATALOG_CLASS}, False, "ICM-105"),
        ({"spark.sql.catalog.lake.type": "hadoop"}, False, "ICM-106"),
    ],
)
def test_check_conf_unsafe_session_is_refused(change: dict[str, str], testing: bool, code: str) -> None:
    check_conf(SAFE, testing=False)
    with pytest.raises(IcebergMaintError) as refusal:
        check_conf({**SAFE, **change}, testing=testing)
    assert refusal.value.code == code
    assert refusal.value.message.endswith(".")


@pytest.mark.parametrize(
    ("master", "message", "code"),
    [
        ("local[2]", "no such class", "ICM-175"),
        ("local[2]", "Cannot call methods on a stopped SparkContext", "ICM-175"),
        ("spark://h:7077", "no such class", "ICM-175"),
        ("spark://h:7077", "Cannot call methods on a stopped SparkContext", "ICM-132"),
        ("yarn", "no such class", "ICM-132"),
    ],
)
def test_start_that_fails_is_the_fault_of_the_cluster_if_its_master_stopped_answering(
    master: str, message: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Builder:
        def config(self, _key: str, _value: str) -> Builder:
            return self

        def getOrCreate(self) -> None:
            raise Py4JError(message)

    monkeypatch.setattr(pyspark.sql.SparkSession, "builder", Builder())
    monkeypatch.setattr(session, "launch", lambda conf, _secrets, _folder: conf)
    with pytest.raises(IcebergMaintError) as failed:
        build_session(SparkSettings(master, (), {}))
    assert failed.value.code == code
    assert message in str(failed.value)


@pytest.mark.spark
def test_check_session_built_by_us_passes_and_returns_its_versions(spark: SparkSession) -> None:
    check_session(spark)
    found = versions(spark)
    assert (found["spark"], found["iceberg"]) == (
        version("pyspark"),
        load_lock().iceberg_version,
    )


@pytest.mark.spark
def test_check_session_catalog_with_cache_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.catalog.lake.cache-enabled", "true")
    try:
        with pytest.raises(IcebergMaintError) as refusal:
            check_session(spark)
    finally:
        spark.conf.set("spark.sql.catalog.lake.cache-enabled", "false")
    assert refusal.value.code == "ICM-105"


class Runner:
    """Called by Java, on a thread of Java's: without the server Java cannot reach us."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> None:
        self.runs += 1

    class Java:
        implements: ClassVar = ["java.lang.Runnable"]


@pytest.mark.spark
def test_callbacks_two_users_share_one_server_that_ends_with_the_last(spark: SparkSession) -> None:
    from iceberg_maint.engines.spark.jvm.bridge import Bridge
    from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS

    bridge = Bridge(spark)
    java_thread = bridge.jvm.java.util.concurrent.Executors.newSingleThreadExecutor()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with Bridge(spark).callbacks():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    runner = Runner()
    with bridge.callbacks():
        thread.start()
        assert inside.wait(30)
    # The other user is still inside.
    java_thread.submit(runner).get()
    assert runner.runs == 1
    leave.set()
    thread.join(30)
    with pytest.raises(JVM_ERRORS):
        java_thread.submit(Runner()).get()
    # The same thread of Java's finds the next server, too.
    again = Runner()
    with bridge.callbacks():
        java_thread.submit(again).get()
    assert again.runs == 1
    java_thread.shutdown()


@pytest.mark.spark
def test_causes_of_a_java_exception_are_named_outermost_first(spark: SparkSession) -> None:
    from iceberg_maint.engines.spark.jvm.bridge import Bridge
    from iceberg_maint.engines.spark.jvm.java_errors import (
        JVM_ERRORS,
        cause_classes,
        connection_lost,
        one_line,
    )

    bridge = Bridge(spark)
    with pytest.raises(JVM_ERRORS) as failure:
        bridge.load_table("lake.nowhere.nothing")
    assert any(name.endswith("NoSuchTableException") for name in cause_classes(failure.value))
    assert "nothing" in one_line(failure.value)
    assert not connection_lost(failure.value)


_LOGGING_PROGRAM = """
import org.apache.logging.log4j.*;

public class Program {
    public static void main(String[] arguments) {
        Logger log = LogManager.getLogger("org.apache.spark.Executor");
        log.error("a task failed", new RuntimeException("outer", new ArithmeticException("inner\\nsecond line")));
        log.error("aborted");
    }
}
"""


@pytest.mark.variant
def test_exception_in_spark_s_log_is_one_line_with_its_innermost_cause(
    java: JavaHome, tmp_path: Path
) -> None:
    (program := tmp_path / "Program.java").write_text(_LOGGING_PROGRAM)
    jars = Path(pyspark.__file__).parent / "jars"
    path = ":".join(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(("log4j-", "jackson-")))
    option = f"-Dlog4j2.configurationFile={settings.__file__.replace('settings.py', 'log4j2.json')}"
    command = [str(java.executable), "-cp", path, option, str(program)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    assert [line[9:] for line in lines] == [
        "ERROR Executor: a task failed: java.lang.ArithmeticException: inner",
        "ERROR Executor: aborted",
    ]


@pytest.mark.spark
def test_callbacks_server_listens_before_its_own_thread_does(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j's server thread is held back, as on a busy machine: Java must get through all the same."""
    from iceberg_maint.engines.spark.jvm.bridge import Bridge

    may_run = threading.Event()
    own_run = CallbackServer.run

    def cannot_run_now(server: CallbackServer) -> None:
        may_run.wait(60)
        own_run(server)

    monkeypatch.setattr(CallbackServer, "run", cannot_run_now)
    bridge = Bridge(spark)
    with bridge.callbacks():
        try:
            socket.create_connection(("127.0.0.1", bridge.gateway._python_proxy_port), timeout=5).close()
        finally:
            may_run.set()
