"""The gate's rules against a model of what readers see: what it lets pass changes no row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from iceberg_maint.core.commits.change import Entry
from iceberg_maint.core.commits.delete_scope import DeleteIndex
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.core.memory_table import (
    ALL,
    P1,
    P2,
    Q1,
    UNPARTITIONED,
    File,
    Lake,
    change_of,
    intent_on,
    rules,
)
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.slow

places = st.sampled_from([ALL, P1, Q1, P2])


@st.composite
def histories(draw: st.DrawFn, *, honest: bool) -> tuple[Lake, Lake, Lake, Intent]:
    """A table at the pinned snapshot, at the base, after our commit; and our intent.

    An honest commit keeps the pinned sequence number and its sources' place and drops only deletes that
    apply to nothing; others do not touch its sources by position. A dishonest one does anything.
    """
    lake = Lake()
    home = draw(places)
    for number in range(draw(st.integers(1, 4))):
        place = home if number < 2 else draw(places)
        rows = (10 * number, 10 * number + 1)
        lake = lake.commit(File(f"f{number}", place, lake.seq + 1, rows=rows))
        if draw(st.booleans()):
            lake = _delete(draw, lake, [f.path for f in lake.data])
    pinned = lake
    candidates = [f for f in pinned.data if f.place == home]
    sources = candidates[: draw(st.integers(1, len(candidates)))]
    named = {f.path for f in sources}
    kept = [r for r in pinned.rows() if any(r in f.rows for f in sources)]
    for number in range(draw(st.integers(0, 4))):
        again = [f.path for f in lake.files] if not honest and draw(st.integers(0, 3)) == 0 else []
        if again:
            lake = lake.registered_again(draw(st.sampled_from(again)))
        elif draw(st.booleans()):
            lake = lake.commit(File(f"g{number}", draw(places), lake.seq + 1, rows=(100 + number,)))
        else:
            touchable = [f.path for f in lake.data if not (honest and f.path in named)]
            lake = _delete(draw, lake, touchable, replaces=not honest, shared=not honest)
    seq = pinned.seq if honest else draw(st.sampled_from([pinned.seq] * 4 + [1, lake.seq + 1]))
    place = home if honest else draw(st.sampled_from([home, home, P1, P2]))
    outputs = [File("new", place, seq, rows=tuple(kept))] if kept else []
    after = lake.commit(*outputs, operation="replace", without=named)
    droppable = [d.path for d in after.deletes if not honest or _void(d, after)]
    if droppable:
        gone = draw(st.sets(st.sampled_from(droppable), max_size=2))
        after = replace(lake.commit(*outputs, operation="replace", without=named | gone), since=after.since)
    return pinned, lake, after, intent_on(pinned, sources, outputs)


def _delete(
    draw: st.DrawFn, lake: Lake, paths: list[str], *, replaces: bool = False, shared: bool = True
) -> Lake:
    seq = lake.seq + 1
    operation = draw(st.sampled_from(["delete", "replace"])) if replaces else "delete"
    if not paths or draw(st.booleans()):
        keys = draw(st.frozensets(st.sampled_from([0, 1, 10, 11, 20, 100, 101]), min_size=1, max_size=3))
        found = File(f"e{seq}", draw(places), seq, FileKind.EQUALITY_DELETES, keys=keys)
        return lake.commit(found, operation=operation)
    path = draw(st.sampled_from(paths))
    place = next(f.place for f in lake.data if f.path == path)
    found = File(
        f"p{seq}",
        place,
        seq,
        FileKind.POSITION_DELETES,
        positions=frozenset({(path, draw(st.integers(0, 1)))}),
        referenced=None if shared and draw(st.booleans()) else path,
    )
    return lake.commit(found, operation=operation)


def _void(delete: File, lake: Lake) -> bool:
    entry = Entry(delete.path, delete.kind, delete.place, delete.seq, 1, delete.referenced)
    reach = DeleteIndex([entry], UNPARTITIONED)
    return not any(reach.find(Entry(f.path, f.kind, f.place, f.seq, 1)) for f in lake.data)


@settings(max_examples=examples(600), deadline=None)
@given(histories(honest=False))
def test_commit_that_the_gate_lets_pass_changes_no_row(history: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = history
    broken = rules(intended, change_of(pinned, base, new, intent=intended))
    event("refused" if broken else "passed")
    if base.rows() != new.rows():
        event("rows would change")
        assert broken


@settings(max_examples=examples(300), deadline=None)
@given(histories(honest=True))
def test_honest_commit_passes_the_gate(history: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = history
    assert check(intended, change_of(pinned, base, new, intent=intended)) == ()
    assert base.rows() == new.rows()
