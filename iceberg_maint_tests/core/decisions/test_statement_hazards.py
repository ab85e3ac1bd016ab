"""The values that statements of other engines may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.statement_hazards import (
    ANSI,
    SPARK,
    CannotError,
    hazards,
    partition_filter,
    plain,
)
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.policy.data import Policy
from iceberg_maint_tests.support.statements import state_of


@pytest.mark.parametrize(
    ("transform", "result", "source", "keys", "condition"),
    [
        ("identity", "string", None, ("p_part=a", "p_part=b-2"), "\"p\" IN ('a', 'b-2')"),
        ("identity", "int", None, ("p_part=-3",), '"p" IN (-3)'),
        ("identity", "boolean", None, ("p_part=true",), '"p" IN (TRUE)'),
        ("identity", "date", None, ("p_part=1000-01-01",), "\"p\" IN (DATE '1000-01-01')"),
        (
            "day",
            "date",
            "date",
            ("p_part=2026-02-28",),
            "(\"p\" >= DATE '2026-02-28' AND \"p\" < DATE '2026-03-01')",
        ),
        (
            "month",
            "int",
            "timestamp",
            ("p_part=1969-12", "p_part=2026-12"),
            (
                "(\"p\" >= TIMESTAMP '1969-12-01 00:00:00' AND \"p\" < TIMESTAMP '1970-01-01 00:00:00') OR "
                "(\"p\" >= TIMESTAMP '2026-12-01 00:00:00' AND \"p\" < TIMESTAMP '2027-01-01 00:00:00')"
            ),
        ),
        (
            "year",
            "int",
            "timestamptz",
            ("p_part=2026",),
            "(\"p\" >= TIMESTAMP '2026-01-01 00:00:00 UTC' AND \"p\" < TIMESTAMP '2027-01-01 00:00:00 UTC')",
        ),
        (
            "hour",
            "int",
            "timestamp",
            ("p_part=2026-11-29-23",),
            "(\"p\" >= TIMESTAMP '2026-11-29 23:00:00' AND \"p\" < TIMESTAMP '2026-11-30 00:00:00')",
        ),
    ],
)
def test_partitions_become_the_condition_that_selects_exactly_them(
    transform: str, result: str, source: str | None, keys: tuple[str, ...], condition: str
) -> None:
    state = state_of(transform, result, source)
    assert partition_filter(tuple(map(PartitionKey, keys)), state, ANSI) == condition


def test_unpartitioned_table_needs_no_condition() -> None:
    assert partition_filter((PartitionKey("__all__"),), state_of(), ANSI) is None


@pytest.mark.parametrize(
    ("transform", "result", "key"),
    [
        ("identity", "string", "p_part=it%27s"),
        ("identity", "string", "p_part=a%20b"),
        ("identity", "string", "p_part=%E2%80%99"),
        ("identity", "string", "p_part=a%5C"),
        ("identity", "string", "p_part="),
        ("identity", "string", "p_part"),
        ("identity", "double", "p_part=1.5"),
        ("identity", "date", "p_part=0999-12-31"),
        ("bucket[8]", "int", "p_part=3"),
        ("truncate[2]", "string", "p_part=ab"),
    ],
)
def test_value_that_is_no_plain_literal_is_refused(transform: str, result: str, key: str) -> None:
    with pytest.raises(CannotError, match=r"."):
        partition_filter((PartitionKey(key),), state_of(transform, result), ANSI)


@pytest.mark.parametrize(
    "name", ['lake.db.t"', "lake.db.t;x", "lake.d b.t", "lake.db.1t", "lake.db.tä", "lake.db.t`"]
)
def test_name_that_a_statement_would_have_to_quote_is_refused(name: str) -> None:
    with pytest.raises(CannotError, match="is not made of ASCII letters, digits and '_'"):
        plain(*TableId.parse(name).namespace, TableId.parse(name).name)


@pytest.mark.parametrize("operation", [Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES])
def test_operation_that_deletes_files_is_no_engines(operation: Operation) -> None:
    assert list(hazards(operation, state_of(), Policy())) == [
        "an engine deletes files at once, and here every file is marked, put into the trash and swept later"
    ]


def test_spark_writes_a_timestamp_without_zone_as_one() -> None:
    condition = partition_filter(
        (PartitionKey("p_part=2026-11-29"),), state_of("day", "date", "timestamp"), SPARK
    )
    assert condition == (
        "(`p` >= TIMESTAMP_NTZ '2026-11-29 00:00:00' AND `p` < TIMESTAMP_NTZ '2026-11-30 00:00:00')"
    )


@pytest.mark.parametrize(("summary", "is_hazard"), [({}, True), ({"total-equality-deletes": "0"}, False)])
def test_delete_files_of_a_kind_that_no_summary_states_are_a_hazard(
    summary: dict[str, str], is_hazard: bool
) -> None:
    state = state_of()
    assert state.snapshot is not None
    deletes = Manifest("m", 1, True, 0, 1, 1, 1, 1, 0, 0, 1, 0)
    head = replace(state.snapshot, summary=summary)
    state = replace(state, snapshot=head, snapshots=(head,), manifests=(deletes,))
    found = [h for h in hazards(Operation.REWRITE_DATA_FILES, state, Policy()) if "equality deletes" in h]
    assert bool(found) is is_hazard
