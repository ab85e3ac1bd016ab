"""Stores that refuse: a wrong secret, another region, an expired token, no server, no bucket.

Each fault is a catalog of its own, whose table is the one of the catalog `lake`, on versitygw, which checks signatures.
Every command must end with its code, none with a stack, and the store must have the same objects afterwards.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from werkzeug.serving import make_server

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.errors import EXIT_REFUSED
from iceberg_maint_tests.qualification.surroundings.stores import BUCKET, Store, versitygw
from iceberg_maint_tests.support.servers.programs import free_port

TABLE, FILES = "db.t", 6
GONE = "gone"
_ANSWER = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)

SAME = "same"
EXPECTED = {
    "secret": "ICM-125",
    "region": "ICM-133",
    "token": "ICM-133",
    "server": "ICM-133",
    "bucket": "ICM-101",
}
"""The code of every command for each fault."""
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "observe": ("observe", "{catalog}.db.t"),
    "why": ("why", "{catalog}.db.t"),
    "scan": ("orphans", "scan", "{catalog}.db.t"),
    "trash": ("orphans", "trash", "{catalog}.db.t"),
    "run": ("run", "{catalog}.db.t", "--operation", "rewrite_data_files"),
    "expiry": ("run", "{catalog}.db.t", "--operation", "expire_snapshots"),
}


class Refusing:
    """Answers every request as S3 does to a token that is too old."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("400 Bad Request", [("Content-Type", "application/xml")])
        return [_ANSWER]


@contextmanager
def expired_store() -> Iterator[str]:
    """The address of a store to which every token is too old."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Refusing(), threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def faults(store: Store, expired: str) -> dict[str, dict[str, str]]:
    """The properties that each fault replaces."""
    return {
        "secret": {"s3.secret-access-key": "{env: SURROUNDINGS_WRONG}"},
        "region": {"s3.region": "eu-west-1", "client.region": "eu-west-1"},
        "token": {"s3.endpoint": expired, "s3.session-token": "{env: SURROUNDINGS_WRONG}"},
        "server": {"s3.endpoint": f"http://127.0.0.1:{free_port()}"},
        "bucket": {},
    }


def configuration(folder: Path, store: Store, expired: str) -> str:
    """The program's configuration: `lake` and a catalog for each fault."""
    lines = [f"ledger: sqlite:///{folder}/ledger.db", "catalogs:"]
    for name, changes in {"lake": {}, **faults(store, expired)}.items():
        lines += [f"  {name}:", "    type: jdbc", f"    uri: sqlite:///{folder}/catalog.db"]
        lines += [f"    warehouse: {store.warehouse}", "    properties:"]
        properties = {**store.properties, **changes}
        lines += [f"      {k}: {v if v.startswith('{') else repr(v)}" for k, v in properties.items()]
    return "\n".join(lines) + "\n"


def prepare(folder: Path, store: Store) -> None:
    """The table in every catalog; that of `bucket` lies in a bucket that is then removed."""
    client = store.client()
    client.create_bucket(Bucket=GONE)
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=store.warehouse, **store.resolved()
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array(range(4), pa.int64())})
    for name, location in ((TABLE, None), ("db.gone", f"s3://{GONE}/t")):
        table = catalog.create_table(name, rows.schema, location=location)
        for _ in range(FILES):
            table.append(rows)
    for key in keys(client, GONE):
        client.delete_object(Bucket=GONE, Key=key)
    client.delete_bucket(Bucket=GONE)
    with closing(sqlite3.connect(folder / "catalog.db")) as database, database:
        for name in EXPECTED:
            of = "gone" if name == "bucket" else "t"
            database.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
                "SELECT ?, table_namespace, 't', metadata_location, iceberg_type FROM iceberg_tables "
                "WHERE catalog_name = 'lake' AND table_name = ?",
                (name, of),
            )
        database.execute("DELETE FROM iceberg_tables WHERE catalog_name = 'lake' AND table_name = 'gone'")


def keys(client: Any, bucket: str = BUCKET) -> set[str]:
    """All keys of a bucket."""
    return {entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ())}


def word_of(config: Path, arguments: Iterable[str]) -> str:
    """The code of a command that is refused, or how it ends else."""
    result = CliRunner().invoke(iceberg_maint, [*arguments, "--json", "--config", str(config)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{type(result.exception).__name__}: {result.exception}"
    codes = sorted(set(re.findall(r"ICM-[0-9]{3}", result.stdout)))
    if result.exit_code != EXIT_REFUSED or "Traceback" in result.stderr or len(codes) != 1:
        return f"exit {result.exit_code}: {' '.join((result.stderr or result.stdout).split())[:300]}"
    return codes[0]


def run_faults(folder: Path, program: Path) -> dict[str, dict[str, str]]:
    """The word of each command for each fault."""
    folder.mkdir(parents=True)
    words: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:
        store = stack.enter_context(versitygw(folder, program))
        expired = stack.enter_context(expired_store())
        os.environ.update(store.secrets, SURROUNDINGS_WRONG="not-the-secret")
        config = folder / "iceberg_maint.yaml"
        config.write_text(configuration(folder, store, expired), encoding="utf-8")
        prepare(folder, store)
        before = keys(store.client())
        for name in EXPECTED:
            calls = {c: [a.format(catalog=name) for a in arguments] for c, arguments in COMMANDS.items()}
            words[name] = {command: word_of(config, call) for command, call in calls.items()}
            words[name]["objects"] = SAME if keys(store.client()) == before else "changed"
    return words


def wrong_faults(words: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What differs from what is expected."""
    return [
        f"WRONG: {name}, {command}: {word}; expected {wanted}"
        for name, row in words.items()
        for command, word in row.items()
        if word != (wanted := SAME if command == "objects" else EXPECTED[name])
    ]


def fault_page(words: Mapping[str, Mapping[str, str]]) -> str:
    """The table of fault and command, in Markdown."""
    columns = [*COMMANDS, "objects"]
    head = f"| Fault | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"
    rows = [f"| {name} | {' | '.join(row[c] for c in columns)} |" for name, row in words.items()]
    return "\n".join([head, *rows])
