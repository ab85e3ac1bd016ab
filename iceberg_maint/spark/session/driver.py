"""Refuses sessions whose driver is another process.

The engine calls Iceberg's Java API in the driver: the commit gate, manifests, and file writers. A client of Spark Connect
has only SQL and data frames, no JVM. In cluster mode the driver is started by the cluster, without this process's
lease.
"""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.errors import RefusedError

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
