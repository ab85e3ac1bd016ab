"""Commits that claim to change no row, judged from the entries of their manifests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from iceberg_maint.core.commits.attestation import Judgement, MetadataVerdict, Side, judge_metadata
from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.model.table_state import FileKind, Manifest

TYPES = {1: "long", 2: "string"}
GLOBAL_SPEC, BY_CAT = 0, 1


def data(path: str, number: int = 1, rows: int = 10, *, cat: str | None = None, **more: object) -> LiveEntry:
    return _entry(path, FileKind.DATA, number, rows, cat, **more)


def equality(path: str, number: int, *, cat: str | None = None) -> LiveEntry:
    return _entry(path, FileKind.EQUALITY_DELETES, number, 1, cat, equality_ids=(1,))


def positions(path: str, number: int, rows: int, of: str | None = None) -> LiveEntry:
    return _entry(path, FileKind.POSITION_DELETES, number, rows, None, referenced_data_file=of)


def vector(path: str, number: int, rows: int, of: str) -> LiveEntry:
    more = {"content_offset": 4, "file_format": "PUFFIN"}
    return _entry(path, FileKind.DELETION_VECTOR, number, rows, None, referenced_data_file=of, **more)


def _entry(path: str, kind: FileKind, number: int, rows: int, cat: str | None, **more: object) -> LiveEntry:
    entry = LiveEntry(
        path, None, kind, () if cat is None else (cat,), number, number, 1, None, rows, 100, None
    )
    return entry._replace(**more)  # type: ignore[arg-type]


def bounds(low: int, high: int) -> tuple[tuple[tuple[int, bytes], ...], ...]:
    nothing: tuple[tuple[int, bytes], ...] = ()
    ends = [((1, value.to_bytes(8, "little", signed=True)),) for value in (low, high)]
    return (nothing, nothing, nothing, nothing, *ends)


def judge(
    before: Sequence[LiveEntry],
    after: Sequence[LiveEntry],
    *,
    kept: Sequence[LiveEntry] = (),
    number: int = 9,
) -> MetadataVerdict:
    """Judges a commit that replaced the manifests with `before` by those with `after`; both snapshots list the manifests
    with `kept`."""
    entries: dict[str, list[LiveEntry]] = {}

    def manifests(name: str, of: Sequence[LiveEntry]) -> list[Manifest]:
        listed = []
        for spec_id in (GLOBAL_SPEC, BY_CAT):
            for is_deletes in (False, True):
                own = [
                    e
                    for e in of
                    if (e.kind is not FileKind.DATA) is is_deletes
                    and bool(e.partition) is (spec_id == BY_CAT)
                ]
                path = f"{name}-{spec_id}-{is_deletes}"
                entries[path] = own
                oldest = min((e.data_sequence_number for e in own), default=0)
                if own:
                    listed.append(
                        Manifest(path, 1, is_deletes, spec_id, number, oldest, 1, len(own), 0, 0, None, None)
                    )
        return listed

    shared = manifests("kept", kept)
    return judge_metadata(
        Side([*shared, *manifests("before", before)], number - 1),
        Side([*shared, *manifests("after", after)], number),
        frozenset({GLOBAL_SPEC}),
        TYPES,
        lambda manifest: entries[manifest.path],
    )


def fact(verdict: MetadataVerdict) -> str:
    (found,) = verdict.facts
    return f"{found.rule}: {found.fact}"


def hazard(verdict: MetadataVerdict) -> str:
    assert verdict.judgement is Judgement.OPEN
    (found,) = verdict.hazards
    return f"{found.rule}: {found.fact}"


def test_regrouped_manifests_are_proved() -> None:
    files = [data("a"), data("b", 2), equality("e", 3), vector("v", 3, 1, "a")]
    verdict = judge(files, list(reversed(files)))
    assert (verdict.judgement, verdict.file_bytes) == (Judgement.PROVED, 0)
    assert verdict.summary == "manifests were regrouped; their 4 live entries are the same"


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"data_sequence_number": 2}, "data_sequence_number: 2, was 1"),
        ({"record_count": 9}, "record_count: 9, was 10"),
        ({"partition": (None,)}, "partition: (None,), was ('x',)"),
        ({"first_row_id": 7}, "first_row_id: 7, was 5"),
        ({"statistics": bounds(1, 8)}, "upper bound of column 1: {!r}, was {!r}"),
        ({"statistics": ((), (), ((1, 0),))}, "count of NULLs of column 1: 0, was None"),
        ({"statistics": ((), (), (), (), ((2, b"b"),))}, "lower bound of column 2: b'b', was None"),
        ({"split_offsets": (90,)}, "split_offsets: (90,), was (4, 90)"),
    ],
)
def test_kept_entry_with_another_fact_is_refuted(change: dict[str, object], difference: str) -> None:
    before = data("a", cat="x", first_row_id=5, split_offsets=(4, 90), statistics=bounds(1, 9))
    verdict = judge([before], [before._replace(**change)])  # type: ignore[arg-type]
    texts = [value.to_bytes(8, "little") for value in (8, 9)]
    assert verdict.judgement is Judgement.REFUTED
    assert fact(verdict) == f"kept_files: a is kept with another {difference.format(*texts)}"


def test_kept_file_under_another_spec_is_refuted() -> None:
    assert (
        fact(judge([data("a", cat="x")], [data("a")])) == "kept_files: a is kept with another spec: 0, was 1"
    )


def test_first_row_ids_of_an_upgrade_and_bounds_that_a_writer_omits_are_no_difference() -> None:
    before = data("a", split_offsets=(4, 90), statistics=bounds(1, 9))
    verdict = judge([before], [data("a", first_row_id=0)])
    assert verdict.judgement is Judgement.PROVED


def test_file_that_becomes_live_twice_is_refuted() -> None:
    doubled, rows = judge([data("a")], [data("a"), data("a")]).facts
    assert doubled.fact == "a is live 2 times, was 1"
    assert rows.fact.endswith("at least 10 are brought back or doubled")
    verdict = judge([data("a", rows=20)], [data("b"), data("b")])
    assert fact(verdict) == "kept_files: b is added 2 times"


def test_fewer_rows_without_deletes_are_refuted_with_their_number() -> None:
    verdict = judge([data("a"), data("b")], [data("c", rows=17)], kept=[data("k")])
    assert fact(verdict) == (
        "row_count: 20 rows were live before and 17 are after it in 2 removed and 1 added data files: at least 3 are lost"
    )


def test_more_rows_than_vectors_leave_are_refuted() -> None:
    before = [data("a"), vector("v", 2, 3, "a")]
    verdict = judge(before, [data("c", rows=8)])
    assert fact(verdict).endswith("at least 1 are brought back or doubled")
    assert judge(before, [data("c", rows=7)]).judgement is Judgement.OPEN


def test_vector_that_vanishes_beside_its_file_is_refuted() -> None:
    verdict = judge([vector("v", 2, 3, "k")], [], kept=[data("k")])
    assert fact(verdict) == (
        "row_count: 7 rows were live before and 10 are after it in k: at least 3 are brought back or doubled"
    )


def test_second_vector_of_a_file_is_refuted() -> None:
    verdict = judge([], [vector("w", 3, 2, "k")], kept=[data("k"), vector("v", 2, 2, "k")])
    assert "second_vector: k has 2 deletion vectors" in [f"{f.rule}: {f.fact}" for f in verdict.facts]


def test_number_of_the_future_is_refuted() -> None:
    assert fact(judge([data("a")], [data("b", 101)])) == (
        "sequence_number: b has data sequence number 101, the commit has 9; no delete reaches its rows until the table "
        "has assigned that number"
    )
    assert judge([data("a")], [data("b", 9)]).judgement is Judgement.OPEN


def test_equal_counts_are_open_with_the_bytes_that_a_proof_reads() -> None:
    verdict = judge([data("a"), data("b")], [data("c", rows=20)], kept=[data("k")])
    assert (verdict.judgement, verdict.hazards, verdict.file_bytes) == (Judgement.OPEN, (), 300)
    assert verdict.summary == "2 data files and 0 delete files removed, 1 and 0 added"


def test_other_bounds_are_a_hazard() -> None:
    verdict = judge([data("a", statistics=bounds(1, 9))], [data("b", statistics=bounds(1, 8))])
    assert hazard(verdict) == "column_bounds: the highest value of column 1 is stated as 8, was 9"


def test_rows_removed_with_all_their_vectors_are_proved() -> None:
    verdict = judge([data("a", rows=3), vector("v", 2, 3, "a")], [])
    assert verdict.judgement is Judgement.PROVED
    assert verdict.summary.endswith("no row of them is live")


def test_dropped_delete_that_reaches_no_live_file_is_proved() -> None:
    verdict = judge([equality("e", 5)], [], kept=[data("new", 5), data("newer", 6)])
    assert verdict.judgement is Judgement.PROVED
    assert verdict.summary.endswith("no delete among them reaches a live file")


def test_dropped_delete_that_reaches_a_kept_file_is_a_hazard() -> None:
    verdict = judge([equality("e", 5)], [], kept=[data("old", 4), data("new", 5)])
    assert hazard(verdict) == (
        "dropped_delete: delete file e (sequence number 5) was removed and would reach old (4)"
    )
    assert verdict.file_bytes == 100 + 2 * 100


def test_global_delete_dropped_reaches_files_of_another_spec() -> None:
    verdict = judge([equality("e", 5)], [], kept=[data("old", 4, cat="x")])
    assert hazard(verdict).endswith("would reach old (4)")


def test_newer_delete_dropped_above_the_rewritten_file_is_a_hazard() -> None:
    """apache/iceberg#10312: the output has the number of the plan, the delete is newer and goes."""
    verdict = judge([data("a", 1), equality("e", 3)], [data("b", 2)], kept=[data("n", 4)])
    assert hazard(verdict).endswith("would reach b (2)")


def test_rows_moved_under_a_newer_delete_are_a_hazard() -> None:
    verdict = judge([data("a", 1)], [data("b", 1, cat="x")], kept=[equality("e", 2, cat="x")])
    assert hazard(verdict) == (
        "scope: equality delete e (sequence number 2) reaches b (1) and not every file that it replaces"
    )


def test_delete_that_reaches_sources_and_output_alike_is_no_hazard() -> None:
    verdict = judge([data("a", 1), data("b", 1)], [data("c", 1, rows=20)], kept=[equality("e", 2)])
    assert (verdict.judgement, verdict.hazards) == (Judgement.OPEN, ())


def test_position_deletes_bound_the_number_of_rows() -> None:
    before = [data("a"), positions("p", 2, 4, "a")]
    assert judge(before, [data("b", rows=6)]).judgement is Judgement.OPEN
    assert judge(before, [data("b", rows=10)]).judgement is Judgement.OPEN
    assert judge(before, [data("b", rows=5)]).judgement is Judgement.REFUTED
    shared = [data("a"), positions("p", 2, 4)]
    assert judge(shared, [data("b", rows=0)]).judgement is Judgement.OPEN
    assert judge(shared, [data("b", rows=11)]).judgement is Judgement.REFUTED
