"""Fetches the jars that Spark needs into a cache folder, once, by exact version and sha256.

Ivy's command line, which PySpark's jars contain, downloads them. It needs only Java and PySpark, and it
reads mirrors and proxies from the user's JVM options. A session names the files in `spark.jars`. The setting
`spark.jars.packages` would resolve them at every start and check no sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from iceberg_maint.engines.spark.session.java import JavaHome, find_java, write_trust_store
from iceberg_maint.errors import IcebergMaintError, RefusedError

FETCH_TIMEOUT_SECONDS = 900

# A Java with its own certificates does not have those of a company. The system's trust store does.
SYSTEM_TRUST_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact: its Maven coordinate parts and the sha256 its bytes must have."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarLock:
    """The jars of one pair of Spark and Iceberg, `spark_version` as major.minor. `s3_jars` are for tables on S3; they
    are not in `jars`."""

    spark_version: str
    scala_version: str
    iceberg_version: str
    jars: tuple[Jar, ...]
    s3_jars: tuple[Jar, ...] = ()


Fetch = Callable[[Jar, Path], Path]
"""Downloads a jar into a folder and returns its path. Raises RefusedError if that fails."""


def load_lock(spark_version: str | None = None) -> JarLock:
    """The locked jars for a Spark version ("4.1" or "4.1.4"). The default is the version of the installed PySpark.

    Raises RefusedError ICM-103 for a Spark version that no tested pair has, and without PySpark.
    """
    if spark_version is None:
        try:
            spark_version = version("pyspark")
        except PackageNotFoundError:
            raise _not_installed() from None
    text = (
        resources.files("iceberg_maint.engines.spark.session")
        .joinpath("jars.lock.json")
        .read_text(encoding="utf-8")
    )
    return parse_lock(json.loads(text), spark_version)


def parse_lock(document: Mapping[str, Any], spark_version: str) -> JarLock:
    """The pair for `spark_version` from the lock file's document. See `load_lock`."""
    minor_version = ".".join(spark_version.split(".")[:2])
    for pair in document["pairs"]:
        if pair["spark"] == minor_version:
            jars = parse_jars([*pair["jars"], *document["common"]])
            s3_jars = parse_jars(pair.get("s3", ()))
            return JarLock(minor_version, pair["scala"], pair["iceberg"], jars, s3_jars)
    supported = " and ".join(pair["spark"] for pair in document["pairs"])
    raise RefusedError(
        "ICM-103",
        f"Spark {spark_version} found; {supported} are the versions with a tested Iceberg runtime.",
        fix="pip install pyspark==4.1.4",
    )


def parse_jars(entries: Iterable[Mapping[str, str]]) -> tuple[Jar, ...]:
    """The jars of a lock file's entries. An entry has a `coordinate` and a `sha256`."""
    parts = ((*entry["coordinate"].split(":"), entry["sha256"]) for entry in entries)
    return tuple(Jar(group, artifact, version, sha256) for group, artifact, version, sha256 in parts)


def resolve_jars(jars: Sequence[Jar], cache_dir: Path, fetch: Fetch) -> list[Path]:
    """Paths of these jars in `cache_dir`, in their order, each with the right sha256.

    Fetches missing jars. A file appears in the cache only after its checksum has been verified.

    Raises RefusedError ICM-103 if a jar cannot be fetched, or has another checksum than the lock. The error names
    both checksums, and the file does not change.
    """
    paths = []
    for jar in jars:
        path = cache_dir / jar.file_name
        if not path.is_file():
            cache_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".fetch-") as scratch:
                fetched = fetch(jar, Path(scratch))
                _verify(
                    jar, fetched, fix=f"try again; behind a mirror, compare {jar.coordinate} with its source."
                )
                fetched.replace(path)
        else:
            _verify(jar, path, fix=f"delete {path} and run again, which fetches it.")
        paths.append(path)
    return paths


def _verify(jar: Jar, path: Path, fix: str) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != jar.sha256:
        raise RefusedError(
            "ICM-103", f"{path} has sha256 {digest}; {jar.coordinate} must have {jar.sha256}.", fix=fix
        )


def ivy_fetch(java: JavaHome, java_options: Sequence[str] = (), certificates: Path | None = None) -> Fetch:
    """A `Fetch` with Ivy's command line on `java` with `java_options` (proxy, trust store).

    If the download fails and the options name no trust store, it is tried again with each system
    trust store and with the PEM bundle `certificates`, because a packaged Java trusts only its own certificates.
    """
    names_trust_store = any("javax.net.ssl.trustStore" in option for option in java_options)

    def fetch(jar: Jar, folder: Path) -> Path:
        path = folder / jar.file_name
        last_line = _run_ivy(java, java_options, jar, folder)
        if not path.is_file() and not names_trust_store:
            for store in _trust_stores(certificates, folder):
                options = [*java_options, f"-Djavax.net.ssl.trustStore={store}"]
                last_line = _run_ivy(java, options, jar, folder)
                if path.is_file():
                    break
        if not path.is_file():
            raise RefusedError(
                "ICM-103",
                f"{jar.coordinate} could not be fetched: {last_line}.",
                fix="check the network; pass proxy or trust store by JAVA_OPTS (-Dhttps.proxyHost=…, "
                f"-Djavax.net.ssl.trustStore=…), or put {jar.file_name} into the jar cache by hand.",
            )
        return path

    return fetch


def environment_fetch(java: JavaHome, environ: Mapping[str, str]) -> Fetch:
    """A `Fetch` with the options of JAVA_OPTS and the PEM bundle of SSL_CERT_FILE."""
    bundle = environ.get("SSL_CERT_FILE")
    return ivy_fetch(java, shlex.split(environ.get("JAVA_OPTS", "")), Path(bundle) if bundle else None)


def _trust_stores(certificates: Path | None, folder: Path) -> Iterator[Path]:
    yield from (store for store in SYSTEM_TRUST_STORES if store.is_file())
    if certificates is not None and certificates.is_file():
        store = folder / "trust.jks"
        if write_trust_store(certificates, store):
            yield store


def _run_ivy(java: JavaHome, java_options: Sequence[str], jar: Jar, folder: Path) -> str:
    """Runs Ivy and returns the last line of its output. The caller checks whether the file exists."""
    command = [
        str(java.executable),
        *java_options,
        *("-cp", str(pyspark_jars_dir() / "*"), "org.apache.ivy.Main"),
        *("-warn", "-cache", str(folder / "ivy"), "-confs", "default", "-m2compatible", "-notransitive"),
        *("-types", "jar", "bundle", "-dependency", jar.group, jar.artifact, jar.version),
        *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
    ]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {FETCH_TIMEOUT_SECONDS} s"
    lines = [line.strip(" \t:.") for line in (run.stdout + "\n" + run.stderr).splitlines()]
    messages = [line for line in lines if any(character.isalpha() for character in line)]
    return messages[-1] if messages else f"Ivy ended with {run.returncode}"


def pyspark_jars_dir() -> Path:
    """The folder of PySpark's jars. It does not import PySpark. Raises RefusedError ICM-103 without PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise _not_installed()
    return Path(spec.origin).parent / "jars"


def _not_installed() -> RefusedError:
    return RefusedError("ICM-103", "PySpark is not installed.", fix="pip install pyspark==4.1.4")


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Fetches and verifies the jars into CACHE/jars and prints their paths."""
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint.engines.spark.session.jars", description=main.__doc__
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder that gets jars/ and java/")
    parser.add_argument("--spark", help="Spark version, default that of PySpark")
    options = parser.parse_args(arguments)
    try:
        java = find_java(environ, shim_dir=options.cache / "java")
        fetch = environment_fetch(java, environ)
        paths = resolve_jars(load_lock(options.spark).jars, options.cache / "jars", fetch)
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    sys.stdout.writelines(f"{path}\n" for path in paths)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
