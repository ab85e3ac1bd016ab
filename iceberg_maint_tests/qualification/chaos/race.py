"""The race of `make demo DEMO=race` on S3 behind a REST catalog: `make demo DEMO=race-s3`. Exits with 1 if there is a fault.

python -m iceberg_maint_tests.qualification.chaos.race --data FOLDER [--seconds 120] [--way ours]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.race.main import run
from bench.race.strategies import WAYS
from iceberg_maint.demo.report import printed
from iceberg_maint.demo.store import LakeStore
from iceberg_maint_tests.qualification.surroundings.catalogs import rest
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import CACHE, folder_or_s3
from iceberg_maint_tests.support.servers.bucket_files import BucketFiles

WIDTH = 190
"""Columns of output that goes to no terminal."""


@contextmanager
def rest_on_s3(folder: Path) -> Iterator[LakeStore]:
    """The servers' files are in this folder. Their credentials are in this process's environment."""
    with folder_or_s3("s3", folder, CACHE) as store, rest(folder, store, Parts(CACHE.absolute())) as catalog:
        os.environ.update(store.secrets)
        assert store.buckets is not None, "versitygw keeps files"
        yield LakeStore(
            lambda _root: store.warehouse,
            lambda _table: None,
            store.yaml_values(),
            catalog.jars,
            BucketFiles(store.buckets),
            ends=True,
            rest_uri=catalog.uri,
        )


def main() -> int:
    names = [way.name for way in WAYS]
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.chaos.race")
    parser.add_argument("--data", type=Path, required=True, help="folder that is deleted and created")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds per strategy")
    parser.add_argument("--way", choices=names, action="append", help="only this strategy; may be repeated")
    options = parser.parse_args()
    ways = [way for way in WAYS if way.name in (options.way or names)]
    with tempfile.TemporaryDirectory(prefix="race-") as folder, rest_on_s3(Path(folder)) as store:
        return printed(
            lambda console: not run(options.data, options.seconds, console, ways, store).faults, WIDTH
        )


if __name__ == "__main__":
    raise SystemExit(main())
