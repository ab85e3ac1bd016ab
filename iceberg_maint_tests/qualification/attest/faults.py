"""Commits that claim to change no row and do not keep every row: those of docs/upstream, and some made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.attest.world import AttestWorld

RED = "RED"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is said of the commit: the status, the ids of rows lost and gained, and a part of the detail. `make` returns the
    table's name."""

    name: str
    make: Callable[[AttestWorld], str]
    status: str = RED
    lost: tuple[int, ...] = ()
    gained: tuple[int, ...] = ()
    detail: str = ""


def _upstream(script: str) -> Callable[[AttestWorld], str]:
    def make(world: AttestWorld) -> str:
        """Runs the script's `reproduce` on a table of this lake."""
        namespace = world.namespace()
        source = (PROJECT / "docs" / "upstream" / f"{script}.py").read_text("utf-8").split("\njars = ")[0]
        for old, new in (
            ("local.db", f"lake.{namespace}"),
            ("'db.t'", f"'{namespace}.t'"),
            ("local.system", "lake.system"),
        ):
            source = source.replace(old, new)
        names: dict[str, Any] = {"spark": world.spark, "__name__": script}
        exec(compile(source, script, "exec"), names)
        names["reproduce"]()
        return f"lake.{namespace}.t"

    return make


def _files(world: AttestWorld, *rows: list[int], version: int = 2) -> tuple[str, list[Any]]:
    name = world.lake.table(
        *[[{"id": i, "v": "x"} for i in ids] for ids in rows],
        version=version,
        properties={"write.delete.mode": "merge-on-read"},
    )
    return name, world.writers.files(world.writers.load(name))


def _rewrite(world: AttestWorld, name: str, removed: list[Any], *added: Any) -> str:
    table = world.writers.load(name)
    operation = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId())
    for file in removed:
        operation.deleteFile(file)
    for file in added:
        operation.addFile(file)
    operation.commit()
    return name


def _data(world: AttestWorld, name: str, *ids: int) -> Any:
    return world.writers.data(world.writers.load(name), [{"id": i, "v": "x"} for i in ids])


def _drops_a_file(world: AttestWorld) -> str:
    name, files = _files(world, [1, 2], [3])
    return _rewrite(world, name, files, _data(world, name, 1, 2))


def _adds_a_live_file(world: AttestWorld) -> str:
    name, files = _files(world, [1], [2])
    return _rewrite(world, name, files[:1], files[1])


def _swaps_equal_counts(world: AttestWorld) -> str:
    name, files = _files(world, [1, 2], [3])
    return _rewrite(world, name, files, _data(world, name, 1, 2, 4))


def _swaps_within_bounds(world: AttestWorld) -> str:
    name, files = _files(world, [1, 2], [3])
    return _rewrite(world, name, files, _data(world, name, 1, 3, 3))


def _revives_by_equality(world: AttestWorld) -> str:
    name, _ = _files(world, [1, 2], [3])
    delete = world.writers.delete_where(world.writers.load(name), [{"id": 2}])
    return _rewrite(world, name, [delete])


def _ignores_position_deletes(world: AttestWorld) -> str:
    name, files = _files(world, [1, 2], [3])
    world.writers.delete_at(world.writers.load(name), {str(files[0].location()): [0]})
    return _rewrite(world, name, files, _data(world, name, 1, 2, 3))


def _drops_a_vector(world: AttestWorld) -> str:
    name, _ = _files(world, [1, 2, 3], version=3)
    world.writers.sql(f"DELETE FROM {name} WHERE id = 2")
    (task,) = world.writers.tasks(world.writers.load(name))
    return _rewrite(world, name, [task.deletes()[0]])


FAULTS = (
    Fault(
        "rewrite_drops_newer_equality_delete", _upstream("rewrite_drops_newer_equality_delete"), gained=(2,)
    ),
    Fault(
        "rewrite_moves_rows_under_newer_delete", _upstream("rewrite_moves_rows_under_newer_delete"), lost=(2,)
    ),
    Fault(
        "rewrite_overlooks_deletes_of_replace", _upstream("rewrite_overlooks_deletes_of_replace"), gained=(2,)
    ),
    Fault("rewrite_overlooks_file_added_again", _upstream("rewrite_overlooks_file_added_again"), lost=(2,)),
    Fault(
        "rewrite_loses_rows_of_removed_delete", _upstream("rewrite_loses_rows_of_removed_delete"), lost=(2,)
    ),
    Fault(
        "rewrite_changes_row_ids_after_upgrade",
        _upstream("rewrite_changes_row_ids_after_upgrade"),
        lost=(1,),
        gained=(1,),
    ),
    Fault(
        "rewrite_accepts_future_sequence_number",
        _upstream("rewrite_accepts_future_sequence_number"),
        detail="sequence_number: ",
    ),
    Fault(
        "position_delete_rewrite_revives_old_delete",
        _upstream("position_delete_rewrite_revives_old_delete"),
        lost=(2,),
    ),
    Fault(
        "second_commit_of_rewrite_corrupts_table",
        _upstream("second_commit_of_rewrite_corrupts_table"),
        status="UNPROVABLE",
        detail="ICM-101 ",
    ),
    Fault("file dropped", _drops_a_file, lost=(3,), detail="row_count: "),
    Fault("live file added again", _adds_a_live_file, lost=(1,), gained=(2,)),
    Fault("equal counts of other rows", _swaps_equal_counts, lost=(3,), gained=(4,)),
    Fault("equal counts and bounds of other rows", _swaps_within_bounds, lost=(2,), gained=(3,)),
    Fault("equality delete dropped", _revives_by_equality, gained=(2,)),
    Fault("position deletes ignored", _ignores_position_deletes, gained=(1,)),
    Fault("deletion vector dropped", _drops_a_vector, gained=(2,), detail="row_count: "),
)
FIXED = ("rewrite_manifests_changes_row_ids", "filtered_scan_brings_deleted_rows_back")
"""Scripts of docs/upstream whose fault the pinned version has no more: their commits are honest."""


def fixed(world: AttestWorld, script: str) -> str:
    """The table of a script whose fault is fixed."""
    return _upstream(script)(world)
