"""The jar cache: only files with the locked checksum ever get in or out of it."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from iceberg_maint.engines.spark.session.jars import Jar, JarLock, ivy_fetch, load_lock, resolve_jars
from iceberg_maint.engines.spark.session.java import JavaHome
from iceberg_maint.errors import RefusedError

GOOD = b"the right bytes"
BAD = b"other bytes"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


ONE = Jar("org.example", "one", "1.0", sha256(GOOD))
TWO = Jar("org.example", "two", "2.0", sha256(GOOD))
LOCK = JarLock("4.1", "2.13", "1.12.0", (ONE, TWO))


class Source:
    """A `Fetch` that hands out the same bytes for every jar and remembers what it was asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[str] = []

    def __call__(self, jar: Jar, folder: Path) -> Path:
        self.asked.append(jar.coordinate)
        path = folder / jar.file_name
        path.write_bytes(self.content)
        return path


def test_lock_for_the_main_pair_has_the_runtime_and_both_drivers() -> None:
    lock = load_lock("4.1.4")
    assert (lock.spark_version, lock.scala_version, lock.iceberg_version) == ("4.1", "2.13", "1.12.0")
    assert [jar.coordinate for jar in lock.jars] == [
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.xerial:sqlite-jdbc:3.53.4.0",
        "org.postgresql:postgresql:42.7.13",
    ]


def test_lock_for_the_second_pair_has_scala_2_12() -> None:
    lock = load_lock("3.5.9")
    assert lock.scala_version == "2.12"
    assert lock.jars[0].file_name == "iceberg-spark-runtime-3.5_2.12-1.12.0.jar"


@pytest.mark.parametrize("version", ["4.3.0", "4.2", "4.10.1", "3.4.2"])
def test_lock_for_an_untested_spark_is_refused(version: str) -> None:
    with pytest.raises(
        RefusedError, match=rf"^ICM-103 Spark {version} found; 4\.1 and 3\.5 are the versions"
    ):
        load_lock(version)


def test_resolve_with_an_empty_cache_fetches_every_jar_in_order(tmp_path: Path) -> None:
    source = Source(GOOD)
    paths = resolve_jars(LOCK.jars, tmp_path / "jars", source)
    assert paths == [tmp_path / "jars" / "one-1.0.jar", tmp_path / "jars" / "two-2.0.jar"]
    assert [path.read_bytes() for path in paths] == [GOOD, GOOD]
    assert source.asked == ["org.example:one:1.0", "org.example:two:2.0"]
    assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == ["one-1.0.jar", "two-2.0.jar"]


def test_resolve_with_a_full_cache_fetches_nothing(tmp_path: Path) -> None:
    resolve_jars(LOCK.jars, tmp_path, Source(GOOD))
    source = Source(BAD)
    assert len(resolve_jars(LOCK.jars, tmp_path, source)) == 2
    assert source.asked == []


def test_resolve_fetched_jar_with_another_checksum_is_refused_and_not_cached(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refusal:
        resolve_jars(LOCK.jars, tmp_path, Source(BAD))
    assert refusal.value.code == "ICM-103"
    assert f"has sha256 {sha256(BAD)}; org.example:one:1.0 must have {sha256(GOOD)}." in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_resolve_cached_jar_that_was_changed_is_refused_and_left_alone(tmp_path: Path) -> None:
    [path, _] = resolve_jars(LOCK.jars, tmp_path, Source(GOOD))
    path.write_bytes(BAD)
    source = Source(GOOD)
    with pytest.raises(RefusedError, match=f"{sha256(BAD)}.*{sha256(GOOD)}.*Fix: delete {path}"):
        resolve_jars(LOCK.jars, tmp_path, source)
    assert source.asked == []
    assert path.read_bytes() == BAD


def test_ivy_fetch_of_an_unknown_artifact_is_refused_with_what_to_do(tmp_path: Path) -> None:
    # A Java that does nothing: Ivy never brings the file, which is all that counts.
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/bash\necho '	:: org.example#one;1.0: not found'\nexit 0\n")
    java.chmod(0o755)
    fetch = ivy_fetch(JavaHome(tmp_path / "jdk", 17, "test"))
    with pytest.raises(RefusedError) as refusal:
        fetch(ONE, tmp_path)
    assert refusal.value.code == "ICM-103"
    assert refusal.value.message == (
        "org.example:one:1.0 could not be fetched: org.example#one;1.0: not found."
    )
    assert "one-1.0.jar into the jar cache" in refusal.value.fix


def test_ivy_fetch_passes_java_options_and_the_exact_coordinate(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/bash\nprintf '%s\\n' \"$@\" > {tmp_path}/arguments\ntouch {tmp_path}/one-1.0.jar\n"
    )
    java.chmod(0o755)
    fetch = ivy_fetch(JavaHome(tmp_path / "jdk", 17, "test"), ["-Dhttps.proxyHost=localhost"])
    assert fetch(ONE, tmp_path) == tmp_path / "one-1.0.jar"
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[0] == "-Dhttps.proxyHost=localhost"
    at = arguments.index("-dependency")
    assert arguments[at : at + 4] == ["-dependency", "org.example", "one", "1.0"]
    assert "-notransitive" in arguments


def test_ivy_fetch_tries_the_pem_bundle_when_java_has_no_trusted_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.engines.spark.session.jars.SYSTEM_TRUST_STORES", ())
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/bash\n[[ $1 == -Djavax.net.ssl.trustStore={tmp_path}/trust.jks ]] && touch {tmp_path}/one-1.0.jar\nexit 1\n"
    )
    java.chmod(0o755)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ssl.DER_cert_to_PEM_cert(b"a certificate"))
    fetch = ivy_fetch(JavaHome(tmp_path / "jdk", 17, "test"), certificates=bundle)
    assert fetch(ONE, tmp_path) == tmp_path / "one-1.0.jar"


def test_ivy_fetch_with_a_trust_store_of_the_users_own_tries_no_other(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/bash\necho run >> {tmp_path}/runs\n")
    java.chmod(0o755)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ssl.DER_cert_to_PEM_cert(b"a certificate"))
    fetch = ivy_fetch(JavaHome(tmp_path / "jdk", 17, "test"), ["-Djavax.net.ssl.trustStore=/mine"], bundle)
    with pytest.raises(RefusedError):
        fetch(ONE, tmp_path)
    assert (tmp_path / "runs").read_text() == "run\n"
