"""Checks of a session: its driver, declared jars and launch settings. Needs no Spark."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from iceberg_maint.errors import ConfigurationError, IcebergMaintError, RefusedError


def check_declared(path: Path, sha256: str | None) -> None:
    """Checks one jar of `spark.jars`. Without a `sha256` it checks only that the file can be read.

    `sha256` is in lower case. Raises RefusedError ICM-103 for a file that is missing, cannot be read, or has
    another checksum.
    """
    try:
        with path.open("rb") as file:
            digest = None if sha256 is None else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as why:
        raise RefusedError(
            "ICM-103",
            f"spark.jars: {path} cannot be read: {why.strerror}.",
            "put the file there, or remove it from spark.jars.",
        ) from why
    if digest != sha256:
        raise RefusedError(
            "ICM-103",
            f"spark.jars: {path} has sha256 {digest}; it must have {sha256}.",
            "fetch the file again, or correct its sha256.",
        )


_REASON = "The program calls Iceberg's Java API in the JVM of the driver, which this process must start."
_FIX = (
    "name the master of the cluster in spark.master: spark://…, k8s://… or yarn; this process is the driver."
)
_CONNECT_SETTINGS = ("spark.remote", "spark.api.mode")
_CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


def check_driver(master: str, conf: Mapping[str, str]) -> None:
    """Raises RefusedError ICM-164 for the address of a Spark Connect server, and for deploy mode `cluster`."""
    if master.startswith("sc://"):
        raise _refused(f"spark.master = {master} is a Spark Connect server.")
    for key in _CONNECT_SETTINGS:
        if conf.get(key, "classic").lower() != "classic":
            raise _refused(f"spark.conf: {key} = {conf[key]} chooses Spark Connect.")
    mode = conf.get("spark.submit.deployMode", "client")
    if mode.lower() == "cluster":
        raise _refused(f"spark.conf: spark.submit.deployMode = {mode} starts the driver in the cluster.")
    if mode.lower() != "client":
        raise RefusedError(
            "ICM-164",
            f"spark.conf: spark.submit.deployMode = {mode}; it must be client.",
            "remove the setting.",
        )


def check_driver_environment(environ: Mapping[str, str]) -> None:
    """Raises RefusedError ICM-164 for a variable with which PySpark builds sessions of Spark Connect."""
    for name in _CONNECT_VARIABLES:
        if environ.get(name):
            raise _refused(f"the environment variable {name} chooses Spark Connect.", f"unset {name}.")


def check_classic(session: object) -> None:
    """Raises RefusedError ICM-164 for a session of Spark Connect that other code built."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise _refused("the session is a client of Spark Connect.")


def _refused(what: str, fix: str = _FIX) -> RefusedError:
    return RefusedError("ICM-164", f"{what} {_REASON}", fix)


SMALLEST_HEAP_MIB = 480
"""Spark starts with no smaller heap: Java states a thirtieth less than its heap as the most that it uses, and Spark demands
450 MiB of that, one and a half times what it reserves."""
LEAST_WORKERS_MIB = 512
"""A Python worker of one core runs in no less: the interpreter, and the smallest task."""
PROBE_SECONDS = 5.0
LEAST_SCRATCH_BYTES = 16 * 1024 * 1024
_MIB = 1024 * 1024

_MASTER = re.compile(
    r"local(\[(0*[1-9]\d*|\*)(, ?\d+)?\])?|local-cluster\[.+\]|yarn|k8s://.+|spark://[^:/,\s]+:\d+(,[^:/,\s]+:\d+)*"
)
_UNITS_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}
# The size of the driver is an argument of Java, which takes one letter and counts bytes without it.
_DRIVER_SIZE, _EXECUTOR_SIZE = (
    re.compile(r"(\d+)([kmgt])", re.IGNORECASE),
    re.compile(r"(\d+)(?:([kmgtp])b?)?", re.IGNORECASE),
)
_SIZES = (
    ("spark.driver.memory", _DRIVER_SIZE, "a whole number and one of k, m, g, t, as 2g", SMALLEST_HEAP_MIB),
    ("spark.executor.memory", _EXECUTOR_SIZE, "a whole number and a unit, as 4g", SMALLEST_HEAP_MIB),
    ("spark.executor.pyspark.memory", _EXECUTOR_SIZE, "a whole number and a unit, as 4g", LEAST_WORKERS_MIB),
)
_YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def check_launch(master: str, conf: Mapping[str, str]) -> None:
    """Raises ConfigurationError ICM-100 for a master of no known form, and for a memory that Java or Spark does not read or
    with which Spark does not start."""
    if not master.startswith("sc://") and not _MASTER.fullmatch(master):
        raise ConfigurationError(
            "ICM-100",
            f"spark.master is '{master}'. It must be local[n], spark://host:port, k8s://address or yarn.",
            "correct spark.master.",
        )
    for key, form, rule, least_mib in _SIZES:
        if (value := conf.get(key)) is not None:
            _check_size(key, value, form, rule, least_mib)


def check_launch_environment(master: str, environ: Mapping[str, str]) -> None:
    """Raises ConfigurationError ICM-100 for YARN without the folder of its settings."""
    if master == "yarn" and not any(environ.get(name) for name in _YARN_FOLDERS):
        raise ConfigurationError(
            "ICM-100",
            f"spark.master is yarn, and neither {' nor '.join(_YARN_FOLDERS)} is set in the environment.",
            "set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml.",
        )


def check_master_answers(master: str) -> None:
    """Raises IcebergMaintError ICM-132 if no master of a standalone cluster takes a connection. Spark would try for a
    minute and say that its context is stopped."""
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), PROBE_SECONDS):
                return
        except OSError as why:
            failures.append(f"{address}: {why.strerror or why}")
    raise IcebergMaintError(
        "ICM-132",
        f"the Spark cluster {master} cannot be reached: {'; '.join(failures)}.",
        "start its master, or correct spark.master.",
    )


def check_scratch(folders: Iterable[str]) -> None:
    """Raises IcebergMaintError ICM-176 for a folder of scratch files with less than LEAST_SCRATCH_BYTES. The JVM of a full one
    cannot answer. A folder that does not exist is made later."""
    for folder in map(Path, folders):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        if (free_bytes := shutil.disk_usage(existing).free) < LEAST_SCRATCH_BYTES:
            raise IcebergMaintError(
                "ICM-176",
                f"Spark does not start: its scratch folder {folder} has {free_bytes / _MIB:.1f} MiB free. It needs at least "
                f"{LEAST_SCRATCH_BYTES / _MIB:.0f} MiB.",
                "free space there, or name other folders: TMPDIR, and SPARK_LOCAL_DIRS or spark.local.dir.",
            )


def _check_size(key: str, value: str, form: re.Pattern[str], rule: str, least_mib: int) -> None:
    match = form.fullmatch(value.strip())
    if match is None:
        raise ConfigurationError(
            "ICM-100",
            f"spark.conf.{key} is '{value}'. It must be {rule}.",
            f"correct {key} under spark.conf.",
        )
    if int(match[1]) * _UNITS_KIB[(match[2] or "m").lower()] < least_mib * 1024:
        raise ConfigurationError(
            "ICM-100",
            f"spark.conf.{key} is '{value}'. Spark needs {least_mib}m at least.",
            f"raise {key} under spark.conf.",
        )
