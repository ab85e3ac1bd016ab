"""The component of Dagster: `defs.yaml` to definitions. The tables are its state, so that a load of definitions asks no catalog.

No `from __future__ import annotations` here: Dagster reads the annotations of the fields.
"""

import contextlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import dagster as dg
from dagster.components import (
    DefsStateConfig,
    DefsStateConfigArgs,
    ResolutionContext,
    ResolvedDefsStateConfig,
)
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from iceberg_maint.component.build_defs import (
    KEY_PREFIX,
    SENSOR,
    WAIT_MINUTES,
    Options,
    build_beside,
    no_such_asset,
    no_such_table,
)
from iceberg_maint.component.environment import Environment
from iceberg_maint.component.launch import Launcher, in_subprocess
from iceberg_maint.component.table_assets import OBSERVE_CRON
from iceberg_maint.component.translated_names import TableProps, TranslatedNames
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError

_VERSION = 1
_log = logging.getLogger(__name__)


def _beside_the_file(context: ResolutionContext, path: str) -> str:
    return str(context.resolve_source_relative_path(path))


class ScaffoldParams(BaseModel):
    """The options of `dg scaffold defs`."""

    config: str = Field(default="iceberg_maint.yaml", description="The configuration file of iceberg_maint.")
    python: str | None = Field(
        default=None, description="The Python of the environment that maintains tables."
    )


class IcebergMaintenanceScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes the `defs.yaml` of a first component."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """The parameters."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Writes the file."""
        dg.scaffold_component(request, request.params.model_dump(exclude_none=True))


@dg.scaffold_with(IcebergMaintenanceScaffolder)
class IcebergMaintenanceComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """Maintains the Iceberg tables that the assets of this project load: two assets for each table, checks of its health, and
    runs after its loads. The work runs in a process of its own, with the Python that has `iceberg-maint[spark]`.

    The tables are read by `dg utils refresh-defs-state`, and at each load by `dg dev`.
    """

    config: Annotated[
        str,
        dg.Resolver(
            _beside_the_file,
            model_field_type=str,
            description="The configuration file of iceberg_maint. A relative path begins at the folder of this file.",
            examples=["iceberg_maint.yaml"],
        ),
    ]
    python: Annotated[
        str | None,
        dg.Resolver.default(
            description="The Python that has `iceberg-maint[spark]`. By default that of this project.",
            examples=["/srv/iceberg_maint/.venv/bin/python"],
        ),
    ] = None
    tables: Annotated[
        Sequence[str],
        dg.Resolver.default(description="Names or patterns of the tables.", examples=[["lake.db.*"]]),
    ] = ("*",)
    exclude: Annotated[
        Sequence[str],
        dg.Resolver.default(
            description="Names or patterns of tables that are left out.", examples=[["lake.tmp.*"]]
        ),
    ] = ()
    assets: Annotated[
        Mapping[str, str | Sequence[str]],
        dg.Resolver.default(
            description="Table to the key of the asset that loads it, or to several. An asset with the metadata "
            "`dagster/table_name` needs no entry.",
            examples=[{"lake.db.events": "raw/events"}],
        ),
    ] = Field(default_factory=dict)
    key_prefix: Annotated[
        str,
        dg.Resolver.default(description="First parts of the keys of the maintenance assets, separated by /."),
    ] = KEY_PREFIX
    automation: Annotated[bool, dg.Resolver.default(description="Whether maintenance starts by itself.")] = (
        True
    )
    observe_cron: Annotated[
        str, dg.Resolver.default(description="When tables are measured, besides after their loads.")
    ] = OBSERVE_CRON
    sensor: Annotated[
        str | None,
        dg.Resolver.default(
            description="Name of the sensor that evaluates the conditions; null if a sensor of the project does."
        ),
    ] = SENSOR
    blocking: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether a partition over a threshold skips assets downstream of its maintenance in the same run."
        ),
    ] = False
    wait_minutes: Annotated[
        int,
        dg.Resolver.default(
            description="For how long due maintenance waits for loads and readers of a table at most."
        ),
    ] = Field(default=WAIT_MINUTES, ge=0)
    translation: (
        Annotated[
            TranslationFn[TableProps],
            TranslationFnResolver[TableProps](
                template_vars_for_translation_fn=lambda props: {"props": props}
            ),
        ]
        | None
    ) = Field(default=None, description="Attributes of the assets, as of other components of Dagster.")
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the tables are stored: for each configuration, wherever the checkout is that refreshes them."""
        config = "/".join(Path(self.config).parts[-2:])
        return DefsStateConfig.from_args(self.defs_state, f"IcebergMaintenance[{self.key_prefix}][{config}]")

    def launcher(self, environment: Environment) -> Launcher:
        """What runs the work. Override it to run it elsewhere, such as by `by_client` on Kubernetes."""
        return in_subprocess(environment)

    def write_state_to_path(self, state_path: Path) -> None:
        """Reads the tables with the program. Raises ConfigurationError with its code."""
        names = [str(table) for table in self._environment().tables()]
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(json.dumps({"version": _VERSION, "tables": names}), "utf-8")

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """The definitions of the tables. None before the first refresh of the state."""
        if state_path is None:
            return dg.Definitions()
        known = _read_state(state_path)
        tables = [table for table in known if self._chosen(table)]
        if not tables:
            _log.warning("%s", _no_table(self, len(known)))
        named = {
            table: [dg.AssetKey.from_user_string(key) for key in ([keys] if isinstance(keys, str) else keys)]
            for table, keys in self.assets.items()
        }
        specs = _project_assets(context)
        for table, keys in named.items():
            for key in set(keys) - {spec.key for spec in specs}:
                # Only said: it may be one of another code location.
                _log.warning("%s", no_such_asset(table, key))
        for table in sorted(named.keys() - {str(table) for table in tables}):
            # Only said: the asset may be the one that creates the table.
            _log.warning("%s", no_such_table(table))
            del named[table]
        options = Options(
            self.observe_cron if self.automation else None, self.sensor, self.blocking, self.wait_minutes
        )
        launcher = self.launcher(self._environment())
        return build_beside(specs, tables, launcher, named, self._names(), options)

    def _chosen(self, table: TableId) -> bool:
        name = str(table)
        return any(fnmatchcase(name, p) for p in self.tables) and not any(
            fnmatchcase(name, p) for p in self.exclude
        )

    def _environment(self) -> Environment:
        return Environment(self.python or sys.executable, self.config)

    def _names(self) -> IcebergTranslator:
        names = IcebergTranslator([part for part in self.key_prefix.split("/") if part])
        return names if self.translation is None else TranslatedNames(names, self.translation)


def _no_table(component: IcebergMaintenanceComponent, known: int) -> ConfigurationError:
    return ConfigurationError(
        "ICM-126",
        f"tables {list(component.tables)} without exclude {list(component.exclude)} choose none of {known} tables, so "
        "nothing is maintained.",
        "correct the patterns, which match catalog.namespace.table in its case; for new tables run dg utils refresh-defs-state.",
    )


def _read_state(path: Path) -> list[TableId]:
    """The tables of the state. Raises ConfigurationError ICM-100 for the state of another version."""
    try:
        state = json.loads(path.read_text("utf-8"))
        if state["version"] != _VERSION:
            raise ValueError(f"version {state['version']}")
        names = [str(name).split(".") for name in state["tables"]]
        return [TableId(parts[0], tuple(parts[1:-1]), parts[-1]) for parts in names]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as why:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is no state of version {_VERSION} ({why}).",
            "run `dg utils refresh-defs-state`.",
        ) from why


def _project_assets(context: dg.ComponentLoadContext) -> list[dg.AssetSpec]:
    """The assets of the other definitions in the project's folder. What does not load there is no matter of this component: the
    project reports it."""
    specs: list[dg.AssetSpec] = []
    root, folder = context.component_tree.defs_module_path, context.path
    while folder != root and root in folder.parents:
        for other in sorted(folder.parent.iterdir()):
            if other == folder or other.name.startswith(("_", ".")) or _is_maintenance(other):
                continue
            with contextlib.suppress(Exception):
                specs += context.build_defs(other).resolve_all_asset_specs()
        folder = folder.parent
    return specs


def _is_maintenance(folder: Path) -> bool:
    """Whether a component of this class is in the folder, which would ask for the assets of this one."""
    files = folder.rglob("defs.yaml") if folder.is_dir() else ()
    return any("IcebergMaintenanceComponent" in file.read_text("utf-8") for file in files)
