"""A rewrite by Spark that takes longer than the credentials that a REST catalog vends for it.

    python -m iceberg_maint_tests.qualification.vended --cache .cache [--master 'local[2]']

The catalog is Iceberg's handlers over HTTP, the store is moto's S3, which refuses credentials that are too old as S3
does. Each written data file takes two seconds. With `client.refresh-credentials-endpoint` in the answer the rewrite goes
on with new credentials. Without it the rewrite fails as `environment` and commits nothing. The first use fetches Iceberg's
AWS bundle (69 MB) into the cache. Exits 1 if a run ends otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from iceberg_maint_tests.qualification.vended.runs import BUNDLE, Runs


def main() -> int:
    """Prints what each run did."""
    from iceberg_maint.engines.spark.session.jars import environment_fetch, parse_jars, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java

    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.vended")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    java = find_java(os.environ, shim_dir=given.cache / "java")
    fetch = environment_fetch(java, os.environ)
    jars = resolve_jars(parse_jars([BUNDLE]), given.cache / "jars", fetch)
    with (
        tempfile.TemporaryDirectory(prefix="vended-") as scratch,
        Runs(Path(scratch), jars, given.master) as runs,
    ):
        wrong = [w for refreshes in (True, False) for w in runs.rewrite(refreshes=refreshes)]
    for text in wrong:
        sys.stdout.write(f"WRONG: {text}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
