"""Secrets that are easily found again, put everywhere a configuration takes one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

CATALOG_PROPERTIES = (
    "token",
    "credential",
    "header.Authorization",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "adls.account-key",
    "gcs.oauth2.token",
    "client.example-setting",
)
SPARK_SETTINGS = (
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "spark.ssl.keyPassword",
    "spark.example.setting",
)
LEDGER, CATALOG = "led@c4nary/00", "cat@c4nary/01"
"""Passwords inside addresses, with what an address must encode."""


def settings() -> dict[str, str]:
    """The canary of each setting."""
    names = (*CATALOG_PROPERTIES, *SPARK_SETTINGS)
    return {name: f"c4nary-{number:02}-{number * 7919 % 9973}" for number, name in enumerate(names, 2)}


def all_canaries() -> dict[str, str]:
    """The canary of each place, addresses included."""
    return {"ledger": LEDGER, "catalog uri": CATALOG} | settings()


def environment(ledger_url: str, catalog_url: str) -> dict[str, str]:
    """The variables the configuration refers to. The addresses hold `{password}` where theirs goes."""
    addresses = {
        "LEDGER": ledger_url.format(password=quote(LEDGER, safe="")),
        "CATALOG": catalog_url.format(password=quote(CATALOG, safe="")),
    }
    return addresses | {_variable(name): value for name, value in settings().items()}


def configuration(warehouse: Path) -> str:
    """A file (JSON is YAML) that takes every secret from the environment."""
    return json.dumps(
        {
            "ledger": {"env": "LEDGER"},
            "catalogs": {
                "lake": {
                    "type": "jdbc",
                    "uri": {"env": "CATALOG"},
                    "warehouse": warehouse.as_uri(),
                    "properties": {name: {"env": _variable(name)} for name in CATALOG_PROPERTIES},
                }
            },
            "spark": {
                "master": "local[1]",
                "conf": {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
                | {name: {"env": _variable(name)} for name in SPARK_SETTINGS},
            },
        }
    )


def found_in(texts: Mapping[str, bytes], canaries: Iterable[str]) -> list[tuple[str, str]]:
    """(where, canary) of every canary in these bytes, as it is, percent-encoded or in base64."""
    hits = []
    for canary in canaries:
        forms = {canary, quote(canary, safe=""), quote(canary), base64.b64encode(canary.encode()).decode()}
        hits += [(where, canary) for where, text in texts.items() if any(f.encode() in text for f in forms)]
    return hits


def files_below(*folders: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {str(f): f.read_bytes() for folder in folders for f in folder.rglob("*") if f.is_file()}


def _variable(name: str) -> str:
    return "C4_" + "".join(c if c.isalnum() else "_" for c in name).upper()
