"""A local S3 server for the demo: moto in this process. Its objects are in memory and end with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import Any

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
