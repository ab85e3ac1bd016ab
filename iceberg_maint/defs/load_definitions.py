"""Builds the definitions of a code location, also of one of several that share the tables. Its settings are environment variables and the configuration file.

- `ICEBERG_MAINT_CONFIG`: the configuration file.
- `ICEBERG_MAINT_SHARD=i/n`: this code location loads share i of n of the tables, counted from 0.
- `ICEBERG_MAINT_DAGSTER_URL`: the web server that reloads the location when tables or the configuration change.
- `ICEBERG_MAINT_KEY_PREFIX=a/b`: a prefix of the asset keys.
- `ICEBERG_MAINT_TABLE_LIST`: the file that lists the tables (default: `tables.json` in the program's folder).

The attribute `shard_2_of_8` of this module has the definitions of share 2 of 8, counted from 0. `iceberg-maint shards 8`
writes a workspace of such attributes. A code location loads the definitions of its own share only.
"""

import gc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from iceberg_maint.config import CONFIG_VARIABLE, load_config
from iceberg_maint.defs.build import build_definitions
from iceberg_maint.defs.code_location import (
    SHARD_VARIABLE,
    CodeLocation,
    ConfigurationFile,
    load_table_list,
    parse_shard,
)
from iceberg_maint.defs.dagster_internals import executed_run
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.wiring import adapters
from iceberg_maint.wiring.integrations import fleet_work

URL_VARIABLE = "ICEBERG_MAINT_DAGSTER_URL"
PREFIX_VARIABLE = "ICEBERG_MAINT_KEY_PREFIX"
TABLE_LIST_VARIABLE = "ICEBERG_MAINT_TABLE_LIST"


def definitions_from(
    environ: Mapping[str, str],
    translator: IcebergTranslator | None = None,
    shard: tuple[int, int] | None = None,
) -> dg.Definitions:
    """Returns the definitions for these environment variables. `translator` replaces the default translator
    and its key prefix, `shard` (index, count) the shard of the variables.

    Reads the catalogs only if there is no table list. Raises ConfigurationError.
    """
    configured = environ.get(CONFIG_VARIABLE)
    configuration = (
        ConfigurationFile(Path(configured), lambda: adapters.build(load_config(None, environ)))
        if configured
        else None
    )
    config = load_config(None, environ)
    context = adapters.build(config)
    listed = environ.get(TABLE_LIST_VARIABLE)
    table_list = Path(listed) if listed else config.home / "tables.json"
    location = CodeLocation(
        load_table_list(table_list, context.catalogs),
        table_list,
        shard or parse_shard(environ.get(SHARD_VARIABLE, "0/1")),
        configuration,
        environ.get(URL_VARIABLE) or None,
        executed_run(),
        config.dagster_keep_days,
    )
    prefix = [p for p in environ.get(PREFIX_VARIABLE, "").split("/") if p]
    work = tuple(fleet_work(config, context)) if location.is_first else ()
    return build_definitions(context, location, translator or IcebergTranslator(prefix), work)


def process_definitions(environ: Mapping[str, str], shard: tuple[int, int] | None = None) -> dg.Definitions:
    """As `definitions_from`, for a process that keeps them until it ends: their objects are never looked at for garbage."""
    with keeping_all():
        return definitions_from(environ, shard=shard)


@contextmanager
def keeping_all() -> Iterator[None]:
    """Collects no garbage in the block, and never looks at the objects that exist at its end.

    Assets, checks and modules live as long as the process of a code location. Python would look at all of them again
    whenever their number has grown by a quarter: a quarter of the CPU that a location takes to load.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def __getattr__(name: str) -> dg.Definitions:
    shard = re.fullmatch(r"shard_(\d+)_of_(\d+)", name)
    if shard is None or int(shard[1]) >= int(shard[2]):
        raise AttributeError(f"{__name__} has no attribute {name!r}: name a share such as shard_0_of_4")
    return process_definitions(os.environ, (int(shard[1]), int(shard[2])))
