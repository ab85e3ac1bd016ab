"""The gate's rules for conversions against a model of what readers see: what it lets pass changes no row."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import event, given, settings
from hypothesis import strategies as st

from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.core.memory_table import (
    ALL,
    P1,
    P2,
    Q1,
    File,
    Lake,
    change_of,
    conversion_on,
)
from iceberg_maint_tests.support.examples import examples

places = st.sampled_from([ALL, P1, P1, Q1, P2])
keys = st.frozensets(st.sampled_from([0, 1, 10, 11, 20, 21, 30]), min_size=1, max_size=4)


def appended(draw: st.DrawFn, lake: Lake, *, old: bool = False) -> Lake:
    """One more data file; an `old` one may have any sequence number."""
    number = len(lake.manifests)
    seq = draw(st.integers(1, lake.seq + 1)) if old else lake.seq + 1
    rows = tuple(draw(st.lists(st.sampled_from([0, 1, 10, 11, 20, 21, 30]), min_size=1, max_size=3)))
    return lake.commit(File(f"f{lake.seq + 1}-{number}", draw(places), seq, rows=rows), operation="overwrite")


def deleted_by_key(draw: st.DrawFn, lake: Lake) -> Lake:
    seq = lake.seq + 1
    return lake.commit(
        File(f"e{seq}", draw(places), seq, FileKind.EQUALITY_DELETES, keys=draw(keys)), operation="delete"
    )


def deleted_by_position(draw: st.DrawFn, lake: Lake, *, vectors: bool) -> Lake:
    """One position of one data file more, as the format version has it."""
    if not lake.data:
        return lake
    file = draw(st.sampled_from(lake.data))
    position = draw(st.integers(0, len(file.rows) - 1))
    if vectors:
        new = vector_of(lake, file, {position})
        return lake.commit(new, operation="delete", without=vectors_of(lake, file))
    shared = draw(st.booleans())
    new = File(
        f"p{lake.seq + 1}",
        file.place,
        lake.seq + 1,
        FileKind.POSITION_DELETES,
        positions=frozenset({(file.path, position)}),
        referenced=None if shared else file.path,
    )
    return lake.commit(new, operation="delete")


def replaced(draw: st.DrawFn, lake: Lake) -> Lake:
    """One data file by its visible rows, with its own sequence number, as a foreign compaction may."""
    if not lake.data:
        return lake
    file = draw(st.sampled_from(lake.data))
    rows = lake.visible(file)
    output = [File(f"r{lake.seq + 1}", file.place, file.seq, rows=rows)] if rows else []
    return lake.commit(*output, operation="replace", without=[file.path, *vectors_of(lake, file)])


def vectors_of(lake: Lake, file: File) -> list[str]:
    return [d.path for d in lake.deletes if d.kind is FileKind.DELETION_VECTOR and d.referenced == file.path]


def vector_of(lake: Lake, file: File, positions: Iterable[int], seq: int | None = None) -> File:
    """A deletion vector of these positions and all that were marked before."""
    seq = lake.seq + 1 if seq is None else seq
    marked = frozenset((file.path, p) for p in {*positions, *lake.marked_rows(file)})
    return File(
        f"v{seq}-{file.path}",
        file.place,
        seq,
        FileKind.DELETION_VECTOR,
        positions=marked,
        referenced=file.path,
        offset=seq,
    )


def taken_over(
    draw: st.DrawFn, pinned: Lake, file: File, marked: frozenset[tuple[str, int]], *, honest: bool
) -> list[File]:
    """Older position deletes that the new ones of the file replace; a dishonest plan takes those of other files. A
    conversion adds a position that the older ones do not have."""
    older = [d for d in pinned.deletes if d.kind is FileKind.POSITION_DELETES]
    if honest:
        older = [d for d in older if (d.referenced, d.place) == (file.path, file.place)]
        older = [d for d in older if not d.positions >= marked]
    return [d for d in older if draw(st.booleans())]


@st.composite
def conversions(draw: st.DrawFn, *, honest: bool) -> tuple[Lake, Lake, Lake, Intent]:
    """A table at the pinned snapshot, at the base, after our commit; and our intent.

    The positions are always right, as the proof has it. An honest conversion has examined every file that
    the deletes it drops apply to, and others only append and delete; a dishonest one does anything.
    """
    version = draw(st.sampled_from([2, 3]))
    lake = Lake()
    for _ in range(draw(st.integers(2, 6))):
        step = draw(st.sampled_from(["append", "append", "key", "key", "position", "vector"]))
        if step == "append" or not lake.data:
            lake = appended(draw, lake)
        elif step == "key":
            lake = deleted_by_key(draw, lake)
        else:
            lake = deleted_by_position(draw, lake, vectors=version == 3 and step == "vector")
    pinned = lake
    by_key = [d for d in pinned.deletes if d.kind is FileKind.EQUALITY_DELETES]
    chosen = draw(st.sets(st.sampled_from([d.path for d in by_key]))) if by_key else set()
    examined = [f for f in pinned.data if honest or draw(st.integers(0, 4))]

    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.sampled_from(["append", "key", "position", "old", "replace", "again"]))
        if step == "append" or (honest and step in ("position", "old", "replace", "again")):
            lake = appended(draw, lake)
        elif step == "key":
            lake = deleted_by_key(draw, lake)
        elif step == "position":
            lake = deleted_by_position(draw, lake, vectors=version == 3)
        elif step == "again" and lake.files:
            lake = lake.registered_again(draw(st.sampled_from([f.path for f in lake.files])))
        else:
            lake = appended(draw, lake, old=True) if step == "old" else replaced(draw, lake)

    marks, gone = [], set(chosen)
    taken: dict[str, tuple[str, ...]] = {}
    for file in examined:
        positions = pinned.rows_of_keys(file)
        if not positions:
            continue
        if version == 3:
            marks.append(vector_of(pinned, file, positions, lake.seq + 1))
            if honest or draw(st.integers(0, 5)):
                gone |= set(vectors_of(pinned, file))
        else:
            marked = frozenset((file.path, p) for p in positions)
            seq = lake.seq + 1
            taken[file.path] = tuple(d.path for d in taken_over(draw, pinned, file, marked, honest=honest))
            marked |= {
                at
                for d in pinned.deletes
                if d.path in taken[file.path]
                for at in d.positions
                if at[0] == file.path
            }
            gone |= set(taken[file.path])
            marks.append(
                File(
                    f"c{seq}-{file.path}",
                    file.place,
                    seq,
                    FileKind.POSITION_DELETES,
                    positions=marked,
                    referenced=file.path,
                )
            )
    intended = conversion_on(pinned, examined, marks, chosen, version, taken)
    if not honest:
        gone |= (
            draw(st.sets(st.sampled_from([f.path for f in lake.files]), max_size=1))
            if draw(st.booleans()) and lake.files
            else set()
        )
        marks = [m for m in marks if draw(st.integers(0, 9))]
    return pinned, lake, lake.commit(*marks, operation="delete", without=gone), intended


def seen(lake: Lake) -> list[int] | str:
    try:
        return lake.rows()
    except ValueError as why:
        return str(why)


@settings(max_examples=examples(600), deadline=None)
@given(conversions(honest=False))
def test_conversion_that_the_gate_lets_pass_changes_no_row(case: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = case
    broken = check(intended, change_of(pinned, base, new, intent=intended))
    event("refused" if broken else "passed")
    if seen(base) != seen(new):
        event("rows would change")
        assert broken


@settings(max_examples=examples(300), deadline=None)
@given(conversions(honest=True))
def test_honest_conversion_passes_the_gate(case: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = case
    assert check(intended, change_of(pinned, base, new, intent=intended)) == ()
    assert seen(base) == seen(new)
