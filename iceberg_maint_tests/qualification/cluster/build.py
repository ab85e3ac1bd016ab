"""Builds the demo lake through the catalog of a configuration, by writers on this machine.

python -m iceberg_maint_tests.qualification.cluster.build FOLDER
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from iceberg_maint.demo.main import make_catalog
from iceberg_maint.demo.tables import SMALL, Writers
from iceberg_maint.demo.workspace import place
from iceberg_maint.wiring.adapters import build
from iceberg_maint_tests.qualification.cluster.lake import LAKE


def main(folder: str) -> None:
    where = place(Path(folder))
    config = where.prepare(os.environ)
    # The writers are not what the suite is about, and need no executors.
    conf = {k: v for k, v in config.spark.conf.items() if k != "spark.archives"}
    config = replace(config, spark=replace(config.spark, master="local[2]", conf=conf))
    context = build(config)
    # The demo adds orphans to the store itself.
    writers = Writers(make_catalog(config), context.engine.spark.session, where, SMALL, lambda _table: None)
    for table in LAKE:
        table.build(writers)
        print(table.name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
