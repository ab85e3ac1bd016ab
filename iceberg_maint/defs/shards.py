"""Entry points of Dagster for code locations that share the tables.

The attribute `shard_2_of_8` has the definitions of share 2 of 8, counted from 0. `iceberg-maint init --shards 8`
writes a workspace of them. A code location loads the definitions of its own share only.
"""

import os
import re

import dagster as dg

from iceberg_maint.defs.load_definitions import process_definitions


def __getattr__(name: str) -> dg.Definitions:
    shard = re.fullmatch(r"shard_(\d+)_of_(\d+)", name)
    if shard is None or int(shard[1]) >= int(shard[2]):
        raise AttributeError(f"{__name__} has no attribute {name!r}: name a share such as shard_0_of_4")
    return process_definitions(os.environ, (int(shard[1]), int(shard[2])))
