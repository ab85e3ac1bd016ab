"""The demo lake on S3, a REST catalog, PostgreSQL and a standalone Spark cluster: `make demo DEMO=cluster`.

Every server is a process of its own but moto's S3, which runs here. The command line rewrites one table with the
strategy `native` while its executor is killed, and one with `columnar` while its worker is killed. A file of the
rewrite is held back in the store during the kill, so the kill comes before the commit. Then Dagster maintains all
tables until nothing is due. DuckDB compares the rows of each table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from iceberg_maint_tests.qualification.cluster.demo import run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make demo DEMO=cluster")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="the folder of logs, which stays; default: a temporary one")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        return run(given.keep.absolute(), given.cache)
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        return run(Path(folder), given.cache)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
