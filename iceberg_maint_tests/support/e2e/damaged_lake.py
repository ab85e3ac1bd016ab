"""Damages tables of a lake, runs the program and Dagster over them, and stores what each screen says of each table.

    python -m iceberg_maint_tests.support.e2e.damaged_lake FOLDER TABLE...

The name of a table is the kind of its damaged file and the damage, `manifest_cut`. It writes FOLDER/screens.json. One process and one session of Spark do everything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from click.testing import CliRunner

from iceberg_maint.cli import iceberg_maint as program
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.load_definitions import definitions_from
from iceberg_maint.defs.names import NO_PROGRESS_CHECK
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.demo.heal import InProcessDagster
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.support.e2e.lake import catalog_of, make_lake, make_table

COMMITS = 6


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 200)


def denied(path: Path) -> None:
    path.chmod(0)


DAMAGES: dict[str, Callable[[Path], None]] = {"cut": cut, "garbage": garbage, "gone": gone, "denied": denied}
FORMAT_VERSIONS = {"deletes": 2, "vectors": 3}
"""The kinds of delete files → the format version of their tables."""
SOUND = "sound"


class Screens:
    """The program on one lake, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ["ICEBERG_MAINT_HOME"] = str(folder / "home")
        # A pass over files of others is refused while a table cannot be read, on every table of the catalog. All screens
        # are shown within one wait, however slow the machine is.
        more = "  remove_orphan_files: {enabled: false}\n  retry: {backoff_seconds: 3600}\n"
        self.config = make_lake(folder, more=more)

    def __call__(self, *arguments: str) -> dict[str, Any]:
        """Exit code, document and stderr of a command."""
        result = CliRunner().invoke(program, [*arguments, "--json", "--config", str(self.config)])
        document = json.loads(result.stdout[result.stdout.index("{") :])
        return {"exit": result.exit_code, "document": document, "stderr": result.stderr}


def make_tables(screens: Screens, names: Sequence[str]) -> None:
    """Tables of small files, some with deletes, some rewritten."""
    for name in (SOUND, *names):
        make_table(screens.folder, f"db.{name}", COMMITS)
    screens("run", f"db.{SOUND}", *(f"db.{name}" for name in names if name.startswith("output")))
    spark = load(screens.config).engine.spark.session()
    for name in names:
        if version := FORMAT_VERSIONS.get(kind_of(name)):
            spark.sql(
                f"alter table lake.db.{name} set tblproperties ('format-version'='{version}', "
                "'write.delete.mode'='merge-on-read')"
            )
            spark.sql(f"insert into lake.db.{name} values (0, 'a'), (0, 'b'), (0, 'c')")
            spark.sql(f"delete from lake.db.{name} where v = 'a'")


def kind_of(name: str) -> str:
    """The kind of the damaged file of a table."""
    return name.rpartition("_")[0]


def damaged_file(folder: Path, name: str) -> Path:
    """The file of the table that is damaged."""
    table = catalog_of(folder).load_table(f"db.{name}")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    tasks = sorted(table.scan().plan_files(), key=lambda t: t.file.file_path)
    location = {
        "metadata": lambda: table.metadata_location,
        "list": lambda: snapshot.manifest_list,
        "manifest": lambda: manifests[0].manifest_path,
        "data": lambda: tasks[0].file.file_path,
        "output": lambda: tasks[-1].file.file_path,
    }.get(kind_of(name), lambda: next(iter(d.file_path for t in tasks for d in t.delete_files)))()
    return Path(location.removeprefix("file:").replace("///", "/", 1))


def check_of(instance: dg.DagsterInstance, name: str) -> dict[str, Any]:
    """The last evaluation of the check `no_progress` of the table."""
    key = dg.AssetCheckKey(
        IcebergTranslator().get_asset_key(TableId.parse(f"lake.db.{name}")), NO_PROGRESS_CHECK
    )
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    evaluation = record.event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
    return {"passed": evaluation.passed, "text": evaluation.description}


def main() -> None:
    """Everything, in order."""
    folder = Path(sys.argv[1])
    damaged = sys.argv[2:]
    screens = Screens(folder)
    make_tables(screens, damaged)
    screens("observe")
    dagster_home = folder / "dagster"
    dagster_home.mkdir()
    os.environ |= {"DAGSTER_HOME": str(dagster_home), "ICEBERG_MAINT_CONFIG": str(screens.config)}
    names = [SOUND, *damaged]
    tables = [TableId.parse(f"lake.db.{name}") for name in names]
    dagster = InProcessDagster(definitions_from(os.environ), dagster_home, tables, housekeeping=True)
    dagster.observe()
    files = {name: damaged_file(folder, name) for name in damaged}
    for name in damaged:
        DAMAGES[name.rpartition("_")[2]](files[name])
    shown: dict[str, Any] = {"files": {name: file.name for name, file in files.items()}}
    shown["run"] = screens("run")
    for command in ("tables", "observe", "report", "history", "run"):
        shown[f"{command} after"] = screens(command)
    for name in names:
        for command in ("why", "plan", "attest"):
            shown[f"{command} {name}"] = screens(command, f"db.{name}")
    shown["last tables"] = screens("tables")
    shown["tick"] = sorted({str(r.table) for r in dagster.tick()})
    dagster.observe()
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        shown["checks"] = {name: check_of(instance, name) for name in names}
    dagster.close()
    (folder / "screens.json").write_text(json.dumps(shown, indent=1), "utf-8")


if __name__ == "__main__":
    main()
