"""The fixed folder of the stored lake, its archives, and the readers of what is in it.

Iceberg metadata, position deletes and trash manifests hold absolute paths, some of them compressed and some of
them part of a digest. An archive is therefore unpacked where it was made, and nothing in it is rewritten.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint_tests.support.e2e.lake import rows_by_duckdb

PLACE = Path("/tmp/iceberg_maint_stored")
ARCHIVES = Path(__file__).parent
CONFIG = "iceberg_maint.yaml"
PARTITIONED = ("broken", "events", "logs", "paused", "tried")
"""Tables whose second column, `day`, is their partition."""
TABLES = (*PARTITIONED, "upserts")
HALF_DONE = {"events": "intent_saved", "tried": "before_swap"}
"""Tables whose last run was killed, and where."""
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
_SCRATCH = f"{PLACE.name}/.iceberg_maint/spark"


@contextmanager
def locked_place() -> Iterator[Path]:
    """The folder, empty, for one process at a time; removed at the end."""
    with PLACE.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        try:
            yield PLACE
        finally:
            shutil.rmtree(PLACE, ignore_errors=True)


def pack(archive: Path) -> None:
    """Writes the folder into an archive. Modification times are kept: trash manifests hold them."""
    part = archive.with_suffix(".part")
    with tarfile.open(part, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(PLACE, PLACE.name, filter=_packed)
    part.replace(archive)


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name == _SCRATCH else member.replace(uid=0, gid=0, uname="", gname="", deep=False)


def unpack(archive: Path) -> None:
    """Fills the folder from an archive."""
    with tarfile.open(archive) as tar:
        tar.extractall(PLACE.parent, filter="data")


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program on the configuration in the folder, as a person calls it."""
    return child("iceberg_maint", *arguments, "--config", str(PLACE / CONFIG))


def child(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module, run with the environment that the configuration names."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "STORED_LEDGER": ledger_url()},
        capture_output=True,
        text=True,
        check=False,
    )


def ledger_url() -> str:
    """What the configuration takes from the environment."""
    return f"sqlite:///{PLACE}/ledger.db"


def policy_of(why: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Value and source of every policy key, from the document of `why`."""
    return {row["key"]: [row["value"], row["source"]] for row in why["policy"]}


def stored_of(why: Mapping[str, Any]) -> dict[str, Any]:
    """What the document of `why` says of stored pauses, back-off and quarantine."""
    keys = ("partition", "verdict", "reason", "until_ms", "history")
    return {
        "verdict": why["verdict"],
        "reason": why["reason"],
        "evidence": why["evidence"],
        "partitions": [{key: partition[key] for key in keys} for partition in why["partitions"]],
    }


def fingerprints() -> dict[str, dict[str, dict[str, Any]]]:
    """Per table and partition how many rows there are, and a digest of them as a multiset, by DuckDB."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table in TABLES:
        rows = rows_by_duckdb(PLACE, f"db.{table}")
        parts: dict[str, list[str]] = {}
        for row in rows.elements():
            parts.setdefault(str(row[1]) if table in PARTITIONED else "", []).append(repr(row))
        found[table] = {
            part: {
                "rows": len(lines),
                "sha256": hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest(),
            }
            for part, lines in sorted(parts.items())
        }
    return found
