"""What is persisted comes back equal; text is canonical; data of another shape is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, SizeLimits, TableHealth
from iceberg_maint.core.model.codec import MalformedTextError, digest, dumps, from_data, loads, to_data
from iceberg_maint.core.model.ids import WHOLE_TABLE, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitResult, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import AttemptEvidence, Record, Settlement
from iceberg_maint.core.outcomes.verification import Fingerprint, Proof
from iceberg_maint.core.planning.plan import Leftover
from iceberg_maint.core.planning.work import FileGroup, InputFile
from iceberg_maint.core.policy.data import Policy
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds

# Batches have a stored form of their own: core/planning/test_batch_body.py.
PERSISTED = (
    AttemptEvidence,
    BatchOutcome,
    CommitResult,
    Decision,
    FileGroup,
    Fingerprint,
    InputFile,
    Leftover,
    Measured,
    OperationOutcome,
    PartitionDecision,
    PartitionHealth,
    PartitionHistory,
    Policy,
    Proof,
    Record,
    Settlement,
    SizeLimits,
    Snapshot,
    TableHealth,
    TableHistory,
    TableId,
    TableState,
)


@pytest.mark.parametrize("kind", PERSISTED, ids=lambda k: k.__name__)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_persisted_value_comes_back_equal(kind: type, data: st.DataObject) -> None:
    st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
    value = data.draw(st.from_type(kind))
    text = dumps(value)
    again = loads(kind, text)
    assert again == value
    assert dumps(again) == text


@settings(max_examples=examples(100), deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back_exactly(value: float) -> None:
    assert from_data(float, json.loads(dumps(value))) == value


def test_equal_values_have_equal_text_and_digest() -> None:
    assert dumps(SizeLimits(1, 2)) == '{"large_above_bytes":2,"small_below_bytes":1}'
    assert digest(SizeLimits(1, 2)) == "932b52ab8cb769986b5fe918ea32695b63f35fcb3312ba8c99cf179912eddf5b"
    assert dumps({"a": 1, "b": 2.0}) == dumps({"b": 2, "a": 1.0}) == '{"a":1,"b":2}'


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    count: int
    share: float
    verdict: Verdict
    pairs: tuple[tuple[int, str], ...] = ()
    by_spec: Mapping[int, str] | None = None
    note: str | None = None


SAMPLE = {
    "name": "a",
    "count": 1,
    "share": 1,
    "verdict": "RUN",
    "pairs": [],
    "by_spec": None,
    "note": None,
}


def test_data_with_every_field_become_the_value() -> None:
    assert from_data(Sample, SAMPLE) == Sample("a", 1, 1.0, Verdict.RUN)


@pytest.mark.parametrize("field", sorted(SAMPLE))
def test_text_without_a_field_is_refused_and_names_it(field: str) -> None:
    text = json.dumps({name: value for name, value in SAMPLE.items() if name != field})
    with pytest.raises(MalformedTextError, match=rf"^Sample has other fields: \['{field}'\]$"):
        loads(Sample, text)


def test_int_keys_and_enums_come_back_typed() -> None:
    value = Sample("a", 1, 0.5, Verdict.SKIP, ((1, "x"),), {3: "y"})
    again = loads(Sample, dumps(value))
    assert again == value
    assert again.verdict is Verdict.SKIP
    assert again.by_spec == {3: "y"}


def test_partition_key_is_stored_as_its_text() -> None:
    leftover = Leftover(PartitionKey("day=2026-11-22"), Reason.NO_GAIN)
    stored = to_data(leftover)
    assert stored["partition"] == "day=2026-11-22"
    assert from_data(Leftover, stored) == leftover
    assert from_data(dict[PartitionKey, int], {"*": 1}) == {WHOLE_TABLE: 1}
    with pytest.raises(ValueError, match="1 is not a str"):
        from_data(Leftover, stored | {"partition": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"count": True},
        {"count": 1.5},
        {"count": "1"},
        {"count": None},
        {"name": 1},
        {"share": "1"},
        {"share": True},
        {"verdict": "WALK"},
        {"pairs": {"a": 1}},
        {"pairs": [[1]]},
        {"pairs": [[1, "x", 2]]},
        {"pairs": "ab"},
        {"by_spec": ["x"]},
        {"by_spec": {"x": "y"}},
        {"note": 1},
    ],
)
def test_data_of_another_shape_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        from_data(Sample, {**SAMPLE, **change})


@pytest.mark.parametrize("data", [None, [], "x", 1, {"name": "a"}])
def test_no_object_or_missing_fields_are_refused(data: object) -> None:
    with pytest.raises(ValueError):
        from_data(Sample, data)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_json_lacks_are_refused(value: float) -> None:
    with pytest.raises(ValueError):
        dumps(value)


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j])
def test_values_without_a_round_trip_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        to_data(value)


def test_surrogates_and_control_characters_come_back() -> None:
    value = TableHistory(paused_reason="\ud800\0\n🧊", partitions={"\udfff": PartitionHistory(reason="é")})
    assert loads(TableHistory, dumps(value)) == value
    assert dumps(value).isascii()


def test_outcomes_are_written_by_their_words() -> None:
    assert to_data(OutcomeStatus.NO_OP) == "NO_OP"
    assert to_data(Reason.NO_GAIN) == "no_gain"
