"""`spark.jars`: which files may be named, and that a session gets them beside the locked ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from iceberg_maint.config import Config, JarConfig, load_config
from iceberg_maint.errors import EXIT_REFUSED, EXIT_USAGE, ConfigurationError, RefusedError
from iceberg_maint.wiring.spark_session import ready_spark_settings

CATALOG = "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"
SHA256 = hashlib.sha256(b"jar").hexdigest()


def config_of(folder: Path, jars: str, **environ: str) -> Config:
    file = folder / "maint.yaml"
    file.write_text(f"{CATALOG}spark: {{jars: {jars}}}\n")
    return load_config(file, environ, "")


def test_jars_are_paths_mappings_or_references(tmp_path: Path) -> None:
    text = f"[/a/b.jar, {{path: /c.jar, sha256: {SHA256.upper()}}}, {{env: JAR}}, {{path: {{env: JAR}}}}]"
    assert config_of(tmp_path, text, JAR="/d.jar").spark.jars == (
        JarConfig(Path("/a/b.jar"), None),
        JarConfig(Path("/c.jar"), SHA256),
        JarConfig(Path("/d.jar"), None),
        JarConfig(Path("/d.jar"), None),
    )


@pytest.mark.parametrize(
    ("jars", "says"),
    [
        ("/a.jar", "spark.jars is text. It must be a list."),
        ("[a.jar]", "spark.jars.0 is 'a.jar'. It must be an absolute path of a local file."),
        ("[s3://b/a.jar]", "spark.jars.0 is 's3://b/a.jar'. It must be an absolute path of a local file."),
        ("[/a.jar, '/b.jar,/c.jar']", "spark.jars.1 is '/b.jar,/c.jar'. It must not contain ','"),
        ("[/jars/*.jar]", "spark.jars.0 is '/jars/*.jar'. It must not contain '*'"),
        ("[{path: /a.jar, sha: 1}]", "spark.jars.0 has the keys path, sha. It must have path"),
        (f"[{{sha256: {SHA256}}}]", "spark.jars.0 has the keys sha256. It must have path"),
        (
            "[{path: /a.jar, sha256: 12}]",
            "spark.jars.0.sha256 is 12. It must be a text of 64 hexadecimal digits.",
        ),
        (
            "[{path: /a.jar, sha256: null}]",
            "spark.jars.0.sha256 is null. It must be a text of 64 hexadecimal digits.",
        ),
        ("[{env: JAR}]", "spark.jars.0 refers to the environment variable JAR, which is not set."),
    ],
)
def test_wrong_jar_is_refused(tmp_path: Path, jars: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        config_of(tmp_path, jars)
    assert (refusal.value.code, refusal.value.exit_code) == ("ICM-100", EXIT_USAGE)
    assert refusal.value.message.startswith(says)


@pytest.mark.spark
def test_declared_jars_come_after_the_locked_ones(tmp_path: Path) -> None:
    for name in ("one.jar", "two.jar"):
        (tmp_path / name).write_bytes(b"jar")
    declared = config_of(tmp_path, f"[{tmp_path}/one.jar, {{path: {tmp_path}/two.jar, sha256: {SHA256}}}]")
    locked = ready_spark_settings(config_of(tmp_path, "[]")).jars
    assert ready_spark_settings(declared).jars == (*locked, f"{tmp_path}/one.jar", f"{tmp_path}/two.jar")
    assert len(locked) == 3


@pytest.mark.parametrize(
    ("name", "sha256", "says"),
    [
        ("gone.jar", "", "gone.jar cannot be read: No such file or directory."),
        (".", "", "cannot be read: Is a directory."),
        ("one.jar", f", sha256: {'a' * 64}", f"one.jar has sha256 {SHA256}; it must have {'a' * 64}."),
    ],
)
def test_declared_jar_that_is_not_as_said_is_refused(
    tmp_path: Path, name: str, sha256: str, says: str
) -> None:
    (tmp_path / "one.jar").write_bytes(b"jar")
    with pytest.raises(RefusedError) as refusal:
        ready_spark_settings(config_of(tmp_path, f"[{{path: {tmp_path}/{name}{sha256}}}]"))
    assert (refusal.value.code, refusal.value.exit_code) == ("ICM-103", EXIT_REFUSED)
    assert refusal.value.message.startswith("spark.jars: ")
    assert refusal.value.message.endswith(says)


@pytest.mark.spark
def test_missing_jar_is_fetched_with_the_java_options_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A Java that notes its arguments and fetches nothing.
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/bash\nprintf '%s\\n' \"$@\" >> {tmp_path}/arguments\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("JAVA_OPTS", "-Dhttps.proxyHost=localhost -Djavax.net.ssl.trustStore=/mine")
    with pytest.raises(RefusedError) as refusal:
        ready_spark_settings(config_of(tmp_path, "[]", ICEBERG_MAINT_CACHE=str(tmp_path / "cache")))
    assert refusal.value.code == "ICM-103"
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["-Dhttps.proxyHost=localhost", "-Djavax.net.ssl.trustStore=/mine"]
