"""From a file, or none, to one configuration: precedence, provenance and every refusal of the connection part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_maint.config import Config, load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.errors import (
    EXIT_REFUSED,
    EXIT_USAGE,
    ConfigurationError,
    IcebergMaintError,
    RefusedError,
)

EVENTS = TableId.parse("lake.db.events")
CATALOG = "type: jdbc, uri: 'sqlite:////data/catalog.db', warehouse: 'file:///data/warehouse'"
ONE = f"catalogs:\n  lake: {{{CATALOG}}}\n"

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def from_text(text: str, mounts: str = "", **environ: str) -> Config:
        file = tmp_path / "maint.yaml"
        file.write_text(text, encoding="utf-8")
        return load_config(file, environ, mounts)

    return from_text


def test_no_file_gives_the_embedded_default(tmp_path: Path) -> None:
    config = load_config(None, {"ICEBERG_MAINT_HOME": str(tmp_path)}, "")
    assert config.source == "embedded default"
    assert config.only_catalog == "lake"
    assert config.ledger_url == f"sqlite:///{tmp_path}/ledger.db"
    assert config.catalogs["lake"].pyiceberg_properties() == {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    assert config.policy_for(EVENTS).policy == Policy()


def test_no_home_is_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(None, {}, "").home == tmp_path / ".iceberg_maint"


def test_file_from_the_environment_is_read(tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    file.write_text(ONE)
    config = load_config(None, {"ICEBERG_MAINT_CONFIG": str(file)}, "")
    assert config.source == str(file)
    assert config.home == tmp_path / ".iceberg_maint"
    assert config.ledger_url == f"sqlite:///{tmp_path}/.iceberg_maint/ledger.db"


def test_cache_is_the_named_folder_or_the_checkout(tmp_path: Path) -> None:
    assert load_config(None, {"ICEBERG_MAINT_CACHE": str(tmp_path)}, "").cache == tmp_path
    assert load_config(None, {}, "").cache == Path(__file__).parents[2] / ".cache"


def test_policy_layers_win_in_order_and_say_so(load: Load) -> None:
    config = load(
        "catalogs:\n"
        f"  lake:\n    <<: {{{CATALOG}}}\n    policy: {{max_run_seconds: 2, windows: {{max_files_per_batch: 12}}}}\n"
        "defaults:\n  max_run_seconds: 1\n  rewrite_data_files: {min_input_files: 11}\n"
        "tables:\n"
        "  'lake.db.*': {max_run_seconds: 3, retry: {commit_tries: 13}}\n"
        "  db.events: {max_run_seconds: 4, windows: {cold_after_seconds: null}}\n"
    )
    properties = {
        "maintenance.max_run_seconds": "5",
        "maintenance.windows.order": "oldest_first",
        "other": "x",
    }
    effective = config.policy_for(EVENTS, properties, {"mode": "advise"})
    policy = effective.policy
    assert (policy.max_run_seconds, policy.rewrite_data_files.min_input_files) == (5, 11)
    assert (policy.windows.max_files_per_batch, policy.retry.commit_tries) == (12, 13)
    assert policy.mode is Mode.ADVISE
    told = {path: source for path, source in effective.sources.items() if source != "built-in"}
    assert told == {
        "max_run_seconds": "table property maintenance.max_run_seconds",
        "rewrite_data_files.min_input_files": "defaults",
        "windows.max_files_per_batch": "catalogs.lake.policy",
        "retry.commit_tries": "tables.'lake.db.*'",
        "windows.cold_after_seconds": "tables.'db.events'",
        "windows.order": "table property maintenance.windows.order",
        "mode": "command line",
    }
    ladder = [
        config.policy_for(EVENTS).policy.max_run_seconds,
        config.policy_for(TableId.parse("lake.db.other")).policy.max_run_seconds,
        config.policy_for(TableId.parse("lake.elsewhere.t")).policy.max_run_seconds,
        config.policy_for(TableId.parse("unknown.elsewhere.t")).policy.max_run_seconds,
    ]
    assert ladder == [4, 3, 2, 1]


def test_null_turns_an_inherited_threshold_off(load: Load) -> None:
    config = load(
        ONE
        + "defaults: {rewrite_data_files: {max_delete_files: 7}}\n"
        + "tables: {db.events: {rewrite_data_files: {max_delete_files: null}}}\n"
    )
    effective = config.policy_for(EVENTS)
    assert effective.policy.rewrite_data_files.max_delete_files is None
    assert effective.sources["rewrite_data_files.max_delete_files"] == "tables.'db.events'"


def test_many_and_small_is_one_expressible_threshold(load: Load) -> None:
    config = load(
        ONE + "defaults: {rewrite_data_files: {max_files: 100, max_files_average_bytes: 33554432}}\n"
    )
    policy = config.policy_for(EVENTS).policy.rewrite_data_files
    assert (policy.max_files, policy.max_files_average_bytes) == (100, 33_554_432)


def test_environment_reference_is_resolved_everywhere_and_kept_secret(load: Load) -> None:
    config = load(
        "ledger: {env: LEDGER}\n"
        "catalogs:\n  lake:\n    type: rest\n    uri: {env: URI}\n    warehouse: prod\n"
        "    properties: {s3.secret-access-key: {env: KEY}, s3.path-style-access: true}\n"
        "spark:\n  conf: {spark.hadoop.fs.s3a.secret.key: {env: KEY}}\n",
        LEDGER="postgresql://user:hunter22@db/ledger",
        URI="https://rest/",
        KEY="k3y-of-the-store",
    )
    lake = config.catalogs["lake"]
    assert config.ledger_url == "postgresql+psycopg2://user:hunter22@db/ledger"
    assert lake.pyiceberg_properties() == {
        "type": "rest",
        "uri": "https://rest/",
        "warehouse": "prod",
        "s3.secret-access-key": "k3y-of-the-store",
        "s3.path-style-access": "true",
    }
    assert config.spark.conf == {"spark.hadoop.fs.s3a.secret.key": "k3y-of-the-store"}
    assert config.secrets == {"hunter22", "k3y-of-the-store"}
    assert not any(secret in repr(config) for secret in config.secrets)


NFS = "rw / ext4 rw\nserver:/x /data nfs4 rw\n"

REFUSALS = {
    "missing catalogs": ("ledger: x\n", "ICM-100", EXIT_USAGE, "catalogs is missing"),
    "no catalog": ("catalogs: {}\n", "ICM-100", EXIT_USAGE, "catalogs is empty"),
    "empty file": ("", "ICM-100", EXIT_USAGE, "is empty or not a mapping"),
    "no yaml": ("catalogs: [\n", "ICM-100", EXIT_USAGE, "line 2, column 1 is not valid YAML"),
    "key twice": (ONE + ONE, "ICM-100", EXIT_USAGE, "key 'catalogs' is written twice"),
    "python tag": ("catalogs: !!python/object:os.system {}\n", "ICM-100", EXIT_USAGE, "is not valid YAML"),
    "unknown top key": (ONE + "table: {}\n", "ICM-100", EXIT_USAGE, "table is unknown. Did you mean tables?"),
    "unknown catalog key": (
        f"catalogs:\n  lake: {{{CATALOG}, warehose: x}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.lake.warehose is unknown. Did you mean warehouse?",
    ),
    "unknown spark key": (
        ONE + "spark: {cnf: {}}\n",
        "ICM-100",
        EXIT_USAGE,
        "spark.cnf is unknown. Did you mean conf?",
    ),
    "catalogs nothing": ("catalogs:\n", "ICM-100", EXIT_USAGE, "catalogs is nothing. It must be a mapping"),
    "flag for a list": (
        ONE + "spark: {jars: true}\n",
        "ICM-100",
        EXIT_USAGE,
        "spark.jars is true. It must be a list",
    ),
    "date for text": (
        ONE + "ledger: 2026-01-01\n",
        "ICM-100",
        EXIT_USAGE,
        "ledger is a date. It must be text, or {env: NAME}",
    ),
    "null for a word": (
        ONE + "defaults: {mode: null}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.mode is null. It must be advise or act",
    ),
    "flag for a mapping of keys": (
        ONE + "defaults: {windows: true}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.windows is true. It must be a mapping of policy keys",
    ),
    "spark no mapping": (
        ONE + "spark: 3\n",
        "ICM-100",
        EXIT_USAGE,
        "spark is 3. It must be a mapping",
    ),
    "unknown policy key": (
        ONE + "tables: {lake.db.x: {rewrite_data_files: {min_inputs: 3}}}\n",
        "ICM-100",
        EXIT_USAGE,
        "tables.'lake.db.x'.rewrite_data_files.min_inputs is unknown. Did you mean min_input_files?",
    ),
    "policy key in the wrong section": (
        ONE + "defaults: {windows: {commit_tries: 3}}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.windows.commit_tries is unknown. Did you mean retry.commit_tries?",
    ),
    "policy key nested, then with dots": (
        ONE + "defaults: {retry: {commit_tries: 3}, retry.commit_tries: 7}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.retry.commit_tries is written twice, with dots and nested.",
    ),
    "policy key with dots, then nested": (
        ONE + "tables: {lake.db.x: {retry.commit_tries: 7, retry: {commit_tries: 3}}}\n",
        "ICM-100",
        EXIT_USAGE,
        "tables.'lake.db.x'.retry.commit_tries is written twice, with dots and nested.",
    ),
    "unknown section": (
        ONE + "defaults: {window: {}}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.window is unknown. Did you mean windows?",
    ),
    "section no mapping": (
        ONE + "defaults: {windows: 3}\n",
        "ICM-100",
        EXIT_USAGE,
        "defaults.windows is 3. It must be a mapping of policy keys",
    ),
    "catalog policy": (
        f"catalogs:\n  lake: {{{CATALOG}, policy: {{mode: rest}}}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.lake.policy.mode is 'rest'. It must be advise or act",
    ),
    "catalog name": (
        f"catalogs:\n  a.b: {{{CATALOG}}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.a.b is not a valid catalog name",
    ),
    "catalog type": ("catalogs: {lake: {type: sql}}\n", "ICM-100", EXIT_USAGE, "catalogs.lake.type is 'sql'"),
    "hadoop": ("catalogs: {lake: {type: hadoop}}\n", "ICM-106", EXIT_REFUSED, "catalogs.lake.type is hadoop"),
    "no uri": ("catalogs: {lake: {type: rest}}\n", "ICM-100", EXIT_USAGE, "catalogs.lake.uri is missing"),
    "no warehouse": (
        "catalogs: {lake: {type: jdbc, uri: 'sqlite:////x.db'}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.lake.warehouse is missing",
    ),
    "relative sqlite": (
        "catalogs: {lake: {type: jdbc, uri: 'sqlite:///x.db', warehouse: 'file:///w'}}\n",
        "ICM-100",
        EXIT_USAGE,
        "must name a file by its absolute path",
    ),
    "memory sqlite": (
        ONE + "ledger: 'sqlite://'\n",
        "ICM-100",
        EXIT_USAGE,
        "must name a file by its absolute path",
    ),
    "jdbc form": (ONE + "ledger: 'jdbc:sqlite:/x'\n", "ICM-100", EXIT_USAGE, "ledger is 'jdbc:sqlite:/x'"),
    "warehouse without scheme": (
        "catalogs: {lake: {type: jdbc, uri: 'sqlite:////x.db', warehouse: /w}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.lake.warehouse is '/w'",
    ),
    "warehouse that climbs": (
        "catalogs: {lake: {type: jdbc, uri: 'sqlite:////x.db', warehouse: 'file:///a/../b'}}\n",
        "ICM-100",
        EXIT_USAGE,
        "must not contain '..'",
    ),
    "caching catalog": (
        f"catalogs:\n  lake: {{{CATALOG}, properties: {{cache-enabled: true}}}}\n",
        "ICM-105",
        EXIT_REFUSED,
        "catalogs.lake.properties.cache-enabled is true. It must be false",
    ),
    "caching catalog in spark.conf": (
        ONE + "spark: {conf: {spark.sql.catalog.lake.cache-enabled: 'true'}}\n",
        "ICM-105",
        EXIT_REFUSED,
        "spark.conf.spark.sql.catalog.lake.cache-enabled is true. It must be false",
    ),
    "hive without locks": (
        "catalogs: {h: {type: hive, uri: 'thrift://h', properties: {engine.hive.lock-enabled: false}}}\n",
        "ICM-107",
        EXIT_REFUSED,
        "catalogs.h.properties.engine.hive.lock-enabled is false",
    ),
    "hive without locks in spark.conf": (
        ONE + "spark: {conf: {spark.hadoop.iceberg.engine.hive.lock-enabled: 'false'}}\n",
        "ICM-107",
        EXIT_REFUSED,
        "spark.conf.spark.hadoop.iceberg.engine.hive.lock-enabled is false",
    ),
    "reserved property": (
        f"catalogs:\n  lake: {{{CATALOG}, properties: {{uri: x}}}}\n",
        "ICM-100",
        EXIT_USAGE,
        "catalogs.lake.properties.uri cannot be set here",
    ),
    "catalog on nfs": (ONE, "ICM-116", EXIT_REFUSED, "catalogs.lake.uri is a SQLite file on nfs4"),
    "ledger on nfs": (
        "ledger: sqlite:////data/l.db\ncatalogs: {lake: {type: rest, uri: 'http://r'}}\n",
        "ICM-116",
        EXIT_REFUSED,
        "ledger is a SQLite file on nfs4",
    ),
    "secret property": (
        "catalogs: {lake: {type: rest, uri: 'http://r', properties: {credential: 'id:s3cret'}}}\n",
        "ICM-118",
        EXIT_USAGE,
        "catalogs.lake.properties.credential is a secret",
    ),
    "secret in spark.conf": (
        ONE + "spark: {conf: {spark.hadoop.fs.s3a.access.key: AKIA}}\n",
        "ICM-118",
        EXIT_USAGE,
        "spark.conf.spark.hadoop.fs.s3a.access.key is a secret",
    ),
    "password in an address": (
        ONE + "ledger: 'postgresql://me:s3cret@db/x'\n",
        "ICM-118",
        EXIT_USAGE,
        "ledger is an address that contains a password",
    ),
    "variable not set": (
        ONE + "ledger: {env: NOWHERE}\n",
        "ICM-100",
        EXIT_USAGE,
        "variable NOWHERE, which is not set",
    ),
    "no reference": (
        ONE + "ledger: {environment: X}\n",
        "ICM-100",
        EXIT_USAGE,
        "ledger has the keys environment",
    ),
    "reference with more keys": (
        ONE + "ledger: {env: X, default: y}\n",
        "ICM-100",
        EXIT_USAGE,
        "keys default, env",
    ),
    "list for text": (
        ONE + "ledger: [a]\n",
        "ICM-100",
        EXIT_USAGE,
        "ledger is a list. It must be text, or {env: NAME}",
    ),
}


@pytest.mark.parametrize(("text", "code", "exit_code", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_wrong_file_is_refused(load: Load, text: str, code: str, exit_code: int, says: str) -> None:
    mounts = NFS if code == "ICM-116" else "rw / ext4 rw\n"
    with pytest.raises(IcebergMaintError) as refused:
        load(text, mounts)
    assert (refused.value.code, refused.value.exit_code) == (code, exit_code)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_secret_among_the_arguments_of_java_is_refused(load: Load) -> None:
    text = ONE + "spark: {conf: {spark.driver.extraJavaOptions: {env: JAVA_ARGUMENTS}}}\n"
    with pytest.raises(ConfigurationError, match=r"ICM-118 spark.conf.spark.driver.extraJavaOptions holds"):
        load(text, JAVA_ARGUMENTS="-Dstore.password=pw")


def test_short_secret_inside_a_word_of_the_arguments_of_java_is_accepted(load: Load) -> None:
    text = (
        ONE + "spark: {conf: {spark.driver.extraJavaOptions: -Dkafka=1, spark.x.access-key: {env: KEY_ID}}}\n"
    )
    assert load(text, KEY_ID="k").spark.conf["spark.driver.extraJavaOptions"] == "-Dkafka=1"


def test_hive_table_without_a_lock_is_refused_where_it_is_acted_on(load: Load) -> None:
    config = load("catalogs: {h: {type: hive, uri: 'thrift://h'}}\ntables: {db.looked_at: {mode: advise}}\n")
    unlocked = {"engine.hive.lock-enabled": "False"}
    with pytest.raises(
        RefusedError, match=r"ICM-107 h.db.t: table property engine.hive.lock-enabled is false"
    ):
        config.policy_for(TableId.parse("h.db.t"), unlocked)
    config.policy_for(TableId.parse("h.db.t"), {"engine.hive.lock-enabled": "true"})
    config.policy_for(TableId.parse("h.db.looked_at"), unlocked)


def test_property_of_hive_means_nothing_in_another_catalog(load: Load) -> None:
    load(ONE).policy_for(EVENTS, {"engine.hive.lock-enabled": "false"})


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IcebergMaintError, match=r"ICM-100 configuration file .*No such file"):
        load_config(tmp_path / "none.yaml", {})


def test_folder_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IcebergMaintError, match=r"ICM-100 configuration file .*directory"):
        load_config(tmp_path, {})


@pytest.mark.parametrize("key", ["exclusive_prefixes", "equal_schemes", "equal_authorities"])
def test_property_may_not_say_what_else_belongs_to_a_table(load: Load, key: str) -> None:
    config, path = load(ONE), f"remove_orphan_files.{key}"
    with pytest.raises(
        IcebergMaintError, match=rf"maintenance.{path} may be set in the configuration file only"
    ):
        config.policy_for(EVENTS, {f"maintenance.{path}": "s3://bucket/backups"})
    section = config.policy_for(EVENTS, {}, {path: "a=b"}).policy.remove_orphan_files
    assert getattr(section, key) == ("a=b",)


def test_property_of_the_table_is_refused_by_its_name(load: Load) -> None:
    config = load(ONE)
    with pytest.raises(
        IcebergMaintError, match=r"lake.db.events: table property maintenance.mode is 'x'. It must be"
    ):
        config.policy_for(EVENTS, {"maintenance.mode": "x"})
    with pytest.raises(
        IcebergMaintError, match=r"maintenance.windows.ordre is unknown. Did you mean order\?"
    ):
        config.policy_for(EVENTS, {"maintenance.windows.ordre": "x"})
    with pytest.raises(IcebergMaintError, match=r"--set mde is unknown. Did you mean mode\?"):
        config.policy_for(EVENTS, {}, {"mde": "act"})


def test_home_of_a_file_above_is_named_without_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "maint.yaml").write_text("catalogs: {lake: {type: rest, uri: 'http://127.0.0.1:9'}}\n")
    monkeypatch.chdir(tmp_path / "below")
    config = load_config(Path("../maint.yaml"), {}, "")
    assert config.home == tmp_path.resolve() / ".iceberg_maint"
    assert config.ledger_url == f"sqlite:///{config.home / 'ledger.db'}"
    assert (
        load_config(Path("../maint.yaml"), {"ICEBERG_MAINT_HOME": "../state"}, "").home == tmp_path / "state"
    )


_OF_TYPE = "catalogs:\n  lake: {type: %s, uri: '%s', warehouse: %s}\n"
_FROM_ENV = {
    "warehouse": _OF_TYPE % ("jdbc", "sqlite:////data/catalog.db", "{env: V}"),
    "uri of jdbc": "catalogs:\n  lake: {type: jdbc, uri: {env: V}, warehouse: 'file:///data/warehouse'}\n",
    "uri of rest": "catalogs:\n  lake: {type: rest, uri: {env: V}}\n",
    "uri of hive": "catalogs:\n  lake: {type: hive, uri: {env: V}, warehouse: 'file:///data/warehouse'}\n",
    "endpoint": ONE.replace("}\n", ", properties: {s3.endpoint: {env: V}}}\n"),
    "cache": ONE.replace("}\n", ", properties: {cache-enabled: {env: V}}}\n"),
    "FileIO": "catalogs:\n  lake: {type: glue, warehouse: 'abfss://x', properties: {io-impl: {env: V}}}\n",
    "ledger": ONE + "ledger: {env: V}\n",
    "jar": ONE + "spark: {jars: [{env: V}]}\n",
    "jar with checksum": ONE + "spark: {jars: [{path: {env: V}}]}\n",
    "Spark's cache": ONE + "spark: {conf: {spark.sql.catalog.lake.cache-enabled: {env: V}}}\n",
    "audit": ONE + "audit: {location: {env: V}}\n",
    "sender": ONE
    + "alerts: {receivers: {m: {kind: email, host: h, sender: {env: V}, to: [a@example.org]}}}\n",
    "mail host": ONE
    + "alerts: {receivers: {m: {kind: email, host: {env: V}, sender: a@example.org, to: [a@example.org]}}}\n",
    "header": ONE
    + "alerts: {receivers: {w: {kind: webhook, url: 'https://example.org', headers: {x: {env: V}}}}}\n",
    "telemetry": ONE + "telemetry: {otlp: {endpoint: {env: V}}}\n",
    "statsd": ONE + "telemetry: {dogstatsd: {host: {env: V}}}\n",
}


_IN_THE_WRONG_PLACE = ("c4nary", "c4nary:p\x07w/", "/c4nary/../x,y z/", "nfs://c4nary:x/../y z")


@pytest.mark.parametrize("text", _FROM_ENV.values(), ids=_FROM_ENV)
def test_value_from_the_environment_is_in_no_error_of_the_configuration(load: Load, text: str) -> None:
    errors = []
    for value in _IN_THE_WRONG_PLACE:
        try:
            load(text, V=value)
        except IcebergMaintError as error:
            errors.append(error)
    assert errors
    assert [e for e in errors if "c4nary" in f"{e} {e.message} {e.fix} {e.__cause__}"] == []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1500,
        "defaults: " + "{a: " * 1500 + "}" * 1500,
        "- " * 1500 + "a",
        ONE + "defaults: &a {retry: *a}\n",
        ONE + "defaults: &a {mode: [*a]}\n",
    ],
)
def test_nesting_without_end_is_refused_by_code(load: Load, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(text)
    assert refused.value.code == "ICM-100"
    assert len(str(refused.value)) < 500
