"""The judge of the chaos suite: each thing that must never happen is found when it has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from iceberg_maint_tests.qualification.chaos.history import (
    GapError,
    History,
    Rows,
    Seen,
    change_faults,
    commit_faults,
    compare,
    failed_by_us,
    replay,
)
from iceberg_maint_tests.qualification.chaos.journal import Answer, Attempt, Effect, Journal, Reader, judge
from iceberg_maint_tests.qualification.chaos.lake import Row
from iceberg_maint_tests.qualification.chaos.result import longest_pause, unreadable_faults

pytestmark = pytest.mark.slow


def row(key: int, value: int = 0) -> Row:
    return (key, 0, 0, value, f"v {value}")


def attempt(
    token: str,
    *,
    answer: Answer | None = Answer.ACKED,
    delete: tuple[int, ...] = (),
    put: tuple[Row, ...] = (),
) -> Attempt:
    return Attempt(token, "t", "upsert", Effect(delete, put), {}, 1000, answer, 2000)


def change(what: dict[str, object], answer: Answer = Answer.ACKED) -> Attempt:
    return Attempt("c", "t", "change", Effect(), what, 1000, answer, 2000)


def foreign(number: int, token: str | None = None, operation: str = "append") -> Seen:
    return Seen(number, number - 1 or None, number * 1000, operation, token or f"t{number}")


def ours(number: int, *, batch: str = "b", fence: int = 1) -> Seen:
    return Seen(number, number - 1 or None, number * 1000, "replace", None, batch, fence)


def history(*snapshots: Seen) -> History:
    found = History()
    found.add(snapshots, snapshots[-1].snapshot_id)
    return found


UPSERTS = [
    attempt("t1", put=(row(1), row(2))),
    attempt("t2", delete=(1,), put=(row(1, 5), row(3))),
    attempt("t4", delete=(2, 3)),
]


def test_replay_of_a_chain_applies_each_foreign_commit_in_its_place() -> None:
    chain = history(foreign(1), foreign(2), ours(3), foreign(4)).chain(4)
    by_token = {a.token: a for a in UPSERTS}
    assert replay(chain[:2], by_token) == {1: row(1, 5), 2: row(2), 3: row(3)}
    assert replay(chain, by_token) == {1: row(1, 5)}


def test_rows_that_are_lost_brought_back_or_double_are_distinguished() -> None:
    expected = {1: row(1, 5), 2: row(2)}
    assert compare(expected, [row(2), row(1, 5)]).equal
    assert compare(expected, [row(1, 5)]) == Rows((row(2),), ())
    assert compare(expected, [row(2), row(1, 5), row(1)]) == Rows((), (row(1),))
    assert compare(expected, [row(2), row(2), row(1, 5)]) == Rows((), (row(2),))


def test_history_as_it_should_be_has_no_fault() -> None:
    chain = history(foreign(1), foreign(2), ours(3, fence=1), foreign(4), ours(5, batch="c", fence=2))
    failed = attempt("t9", answer=Answer.FAILED, put=(row(7),))
    lost = attempt("t8", answer=Answer.UNKNOWN, put=(row(8),))
    assert commit_faults(chain, [*UPSERTS, failed, lost]) == []


def test_acknowledged_commit_that_is_no_ancestor_is_lost() -> None:
    chain = history(foreign(1), foreign(2))
    assert commit_faults(chain, UPSERTS) == ["upsert t4 was acknowledged and is lost"]


def test_commit_that_expired_stays_an_ancestor() -> None:
    chain = history(foreign(1), foreign(2))
    chain.add([ours(3), foreign(4)], 4)
    chain.add([foreign(4)], 4)
    assert commit_faults(chain, UPSERTS) == []


def test_failed_commit_that_is_there_is_found() -> None:
    failed = attempt("t2", answer=Answer.FAILED, put=(row(3),))
    assert commit_faults(history(foreign(1), foreign(2)), [UPSERTS[0], failed]) == [
        "upsert t2 failed and is there"
    ]


def test_commit_without_an_author_is_found() -> None:
    unmarked = Seen(2, 1, 2000, "overwrite")
    assert commit_faults(history(foreign(1), unmarked, foreign(3)), [UPSERTS[0]]) == [
        "t3 was written by nobody",
        "snapshot 2 (overwrite) was written by nobody",
    ]


def test_batch_of_ours_that_came_twice_and_a_fence_that_went_back_are_found() -> None:
    assert commit_faults(history(ours(1), ours(2)), []) == ["batch b was committed 2 times"]
    by_another = history(ours(1, fence=1), ours(2, fence=2))
    assert commit_faults(by_another, []) == ["batch b was committed 2 times"]
    back = history(ours(1, fence=2), ours(2, batch="c", fence=1))
    assert commit_faults(back, []) == ["fences of our commits went back"]


def test_snapshot_whose_parent_was_never_seen_is_a_gap() -> None:
    with pytest.raises(GapError, match="snapshot 4"):
        history(foreign(1), foreign(5)).chain(5)


def test_tag_column_or_rename_that_is_gone_is_found() -> None:
    changes = [
        change({"tag": "a", "snapshot": 1}),
        change({"tag": "b", "snapshot": 2}),
        change({"drop_tag": "b"}, Answer.UNKNOWN),
        change({"column": "x"}),
        change({"rename": "remark"}),
        change({"tag": "c", "snapshot": 3}, Answer.FAILED),
    ]
    assert change_faults(changes, {"a": 1}, {5: "remark", 6: "x"}) == []
    assert change_faults(changes, {"a": 2}, {5: "note"}) == [
        "tag a of snapshot 1 is now 2",
        "column x is gone",
        "the column renamed to remark has another name",
    ]


def test_failure_counts_as_ours_if_we_committed_since_or_a_file_is_missing() -> None:
    failed = attempt("x", answer=Answer.FAILED)
    assert not failed_by_us(failed, history(foreign(1), foreign(2)))
    assert failed_by_us(failed, history(foreign(1), ours(2)))
    assert not failed_by_us(failed, history(foreign(1), foreign(2), ours(3)))
    failed.error = "org.apache.iceberg.exceptions.NotFoundException: File does not exist: x.parquet"
    assert failed_by_us(failed, history(foreign(1)))
    assert not failed_by_us(attempt("y"), history(foreign(1), ours(2)))


def test_longest_pause_counts_the_ends_of_the_run() -> None:
    assert longest_pause([], 0.0, 60.0) == 60.0
    assert longest_pause([10.0, 20.0, 90.0], 0.0, 60.0) == 40.0


class CommitStateUnknownException(Exception):
    """As PyIceberg and Iceberg call it."""


def test_maintenance_that_cannot_read_metadata_is_a_fault() -> None:
    errors = Counter({"rewrite_data_files stale: schema": 3, "ICM-101 cannot load rest.chaos.cdc_v2": 2})
    assert unreadable_faults(errors) == ["2 times: ICM-101 cannot load rest.chaos.cdc_v2"]


def test_exception_is_a_failure_only_when_nothing_can_have_been_committed() -> None:
    assert judge(FileNotFoundError("x"))[0] is Answer.FAILED
    assert judge(ConnectionError("x"))[0] is Answer.UNKNOWN
    assert judge(CommitStateUnknownException("CommitFailedException")) == (
        Answer.UNKNOWN,
        "CommitStateUnknownException: CommitFailedException",
    )


def test_journal_read_while_it_is_written_reports_what_was_meant_and_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    journal, reader = Journal(tmp_path / "j"), Reader(tmp_path / "j")
    assert reader.read() == []

    def look(_token: str) -> None:
        assert reader.read() == []
        assert [(a.effect.put, a.answer) for a in reader.attempts.values()] == [((row(1),), None)]

    def fail(_token: str) -> None:
        raise FileNotFoundError("gone")

    assert journal.commit("t", "append", look, Effect(put=(row(1),))) is Answer.ACKED
    assert journal.commit("t", "append", fail, Effect(put=(row(2),))) is Answer.FAILED
    journal.note(ready="appender")
    journal.close()
    assert [a.effect.put for a in reader.read()] == [(row(1),)]
    assert [(a.answer, a.error) for a in reader.attempts.values()] == [
        (Answer.ACKED, ""),
        (Answer.FAILED, "FileNotFoundError: gone"),
    ]
