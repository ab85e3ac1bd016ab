"""Where the demo lake is: a folder, or a local S3 server."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.table import Table

from iceberg_maint.config.load import cache_dir
from iceberg_maint.engines.spark.session.jars import environment_fetch, load_lock, resolve_jars
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint.errors import ConfigurationError

BUCKET, REGION = "lake", "us-east-1"
KEY_ID, SECRET = "demo-key", "demo-secret-key"
"""moto accepts any credentials."""
_ACCOUNT = "123456789012"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""


def moto_application() -> Application:
    """moto's servers. Raises ConfigurationError ICM-100 without moto."""
    try:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    except ImportError as why:
        raise ConfigurationError(
            "ICM-100",
            f"The demo on S3 needs the package moto with its extra 'server' ({why}).",
            "run 'make setup' in a checkout, or pip install 'moto[server]==5.2.5'.",
        ) from why
    application: Application = DomainDispatcherApplication(create_backend_app)
    return application


@contextmanager
def serving(application: Application) -> Iterator[str]:
    """Runs the servers on a loopback port, with the bucket. Gives the address."""
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        _client(url).create_dir(BUCKET)
        yield url
    finally:
        server.shutdown()


def catalog_properties(url: str) -> Mapping[str, str]:
    """The properties of a catalog whose tables are in the bucket, without credentials."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": url,
        "s3.path-style-access": "true",
        "s3.region": REGION,
        "client.region": REGION,
    }


def file_system(url: str) -> Any:
    """The bucket as an fsspec file system."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    return ArrowFSWrapper(_client(url))


def _client(url: str) -> Any:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key=KEY_ID,
        secret_key=SECRET,
        region=REGION,
        endpoint_override=url,
        allow_bucket_creation=True,
    )


def add_old_copies(prefix: str, number: int, age_seconds: float, name: str) -> int:
    """Copies Parquet files under a prefix beside themselves, with a time in the past. `name` gives the copy of each
    number its name. Returns the number of copies."""
    bucket = bucket_of_moto()
    written = sorted(k for k in bucket.keys if k.startswith(prefix) and k.endswith(".parquet"))[:number]
    for i, key in enumerate(written):
        folder = key.rpartition("/")[0]
        copy = _moto().put_object(BUCKET, f"{folder}/{name.format(i)}", bucket.keys[key].value)
        copy.last_modified -= timedelta(seconds=age_seconds)
    return len(written)


def bucket_of_moto() -> Any:
    """moto's bucket, with the objects by key in `keys`."""
    return _moto().buckets[BUCKET]


def _moto() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends[_ACCOUNT]["aws"]


ORPHANS = 12
"""Number of files of a killed job in a table's folder."""
ORPHAN_AGE_SECONDS = 30 * 86_400
ORPHAN_NAME = "{:05}-0-killed-attempt-1.parquet"
_KEY_ID, _SECRET = "DEMO_S3_KEY_ID", "DEMO_S3_SECRET"


class StoreName(StrEnum):
    """The stores of the demo."""

    LOCAL = "local"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class LakeStore:
    """A store that runs.

    `warehouse` is the warehouse's location for the folder of a lake. `properties` are those of the catalog, as YAML
    values. `jars` are those of Spark's client. `add_orphans` adds the files of a killed job to a table.
    `file_system` is an fsspec file system, None for this machine's. `ends`: the objects end with this process.
    `rest_uri` is the address of a REST catalog, None for a catalog in the folder of the lake.
    """

    warehouse: Callable[[Path], str]
    add_orphans: Callable[[Table], None]
    properties: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[Path] = ()
    file_system: Any = None
    ends: bool = False
    rest_uri: str | None = None

    def catalog_yaml(self, root: Path) -> str:
        """The section of the lake's catalog in its configuration."""
        lines = (
            ["type: jdbc", f"uri: sqlite:///{root}/catalog.db", f"warehouse: {self.warehouse(root)}"]
            if self.rest_uri is None
            else ["type: rest", f"uri: {self.rest_uri}"]
        )
        if self.properties:
            lines += ["properties:", *(f"  {key}: {value}" for key, value in self.properties.items())]
        return "".join(f"    {line}\n" for line in lines)


def add_local_orphans(table: Table) -> None:
    """Copies data files of a table on this machine, with times of a month ago."""
    written = sorted(Path(unquote(urlsplit(table.location()).path)).glob("data/**/*.parquet"))
    for number, file in enumerate(written[:ORPHANS]):
        orphan = file.with_name(ORPHAN_NAME.format(number))
        shutil.copyfile(file, orphan)
        then = time.time() - ORPHAN_AGE_SECONDS
        os.utime(orphan, (then, then))


LOCAL = LakeStore(lambda root: f"file://{root}/warehouse", add_local_orphans)
"""The lake's folder."""


@contextmanager
def open_store(name: StoreName, environ: MutableMapping[str, str]) -> Iterator[LakeStore]:
    """The store of this name. That of S3 is served inside the block, and its credentials are in `environ`.

    Raises ConfigurationError ICM-100 without moto, RefusedError ICM-103 without a Java or the jar of Spark's client.
    """
    if name is StoreName.LOCAL:
        yield LOCAL
        return
    application = moto_application()
    cache = cache_dir(environ)
    java = find_java(environ, shim_dir=cache / "java")
    jars = resolve_jars(load_lock().s3_jars, cache / "jars", environment_fetch(java, environ))
    environ.update({_KEY_ID: KEY_ID, _SECRET: SECRET})
    with serving(application) as url:
        yield _s3_store(url, [jar.absolute() for jar in jars])


def _s3_store(url: str, jars: Sequence[Path]) -> LakeStore:
    properties = {
        **{key: f"'{value}'" for key, value in catalog_properties(url).items()},
        "s3.access-key-id": f"{{env: {_KEY_ID}}}",
        "s3.secret-access-key": f"{{env: {_SECRET}}}",
    }
    return LakeStore(
        lambda _root: f"s3://{BUCKET}/warehouse",
        _add_s3_orphans,
        properties,
        jars,
        file_system(url),
        ends=True,
    )


def _add_s3_orphans(table: Table) -> None:
    prefix = f"{table.location()}/data/".removeprefix(f"s3://{BUCKET}/")
    add_old_copies(prefix, ORPHANS, ORPHAN_AGE_SECONDS, ORPHAN_NAME)
