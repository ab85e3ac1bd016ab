"""Where the files of the demo lake are: in its folder, or in a local S3 server."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.table import Table

from iceberg_maint.config.load import cache_dir
from iceberg_maint.demo import s3_server
from iceberg_maint.engines.spark.session.jars import environment_fetch, load_lock, resolve_jars
from iceberg_maint.engines.spark.session.java import find_java

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
    application = s3_server.moto_application()
    cache = cache_dir(environ)
    java = find_java(environ, shim_dir=cache / "java")
    jars = resolve_jars(load_lock().s3_jars, cache / "jars", environment_fetch(java, environ))
    environ.update({_KEY_ID: s3_server.KEY_ID, _SECRET: s3_server.SECRET})
    with s3_server.serving(application) as url:
        yield _s3_store(url, [jar.absolute() for jar in jars])


def _s3_store(url: str, jars: Sequence[Path]) -> LakeStore:
    properties = {
        **{key: f"'{value}'" for key, value in s3_server.catalog_properties(url).items()},
        "s3.access-key-id": f"{{env: {_KEY_ID}}}",
        "s3.secret-access-key": f"{{env: {_SECRET}}}",
    }
    return LakeStore(
        lambda _root: f"s3://{s3_server.BUCKET}/warehouse",
        _add_s3_orphans,
        properties,
        jars,
        s3_server.file_system(url),
        ends=True,
    )


def _add_s3_orphans(table: Table) -> None:
    prefix = f"{table.location()}/data/".removeprefix(f"s3://{s3_server.BUCKET}/")
    s3_server.add_old_copies(prefix, ORPHANS, ORPHAN_AGE_SECONDS, ORPHAN_NAME)
