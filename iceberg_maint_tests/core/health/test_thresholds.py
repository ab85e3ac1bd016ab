"""Every threshold at its boundary, and Iceberg's arithmetic of sizes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.health.metrics import PartitionHealth, SizeLimits
from iceberg_maint.core.health.thresholds import (
    excess_files,
    expected_output_files,
    findings,
    is_due,
    score,
    size_limits,
    target_file_size_bytes,
    worst,
    write_max_file_size_bytes,
)
from iceberg_maint.core.model.reasons import Check, Reason, Severity
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.support.core.values import NOW_MS, TARGET, finding, rewrite_policy
from iceberg_maint_tests.support.examples import examples

LIMITS = SizeLimits(75, 180)


def reasons(health: PartitionHealth, now_ms: int = NOW_MS, **keys: object) -> list[tuple[Reason, Severity]]:
    return [(f.reason, f.severity) for f in findings(health, rewrite_policy(**keys), TARGET, now_ms)]


def smalls(small: int, size: int = 10, others: int = 0) -> PartitionHealth:
    return PartitionHealth(
        data_files=small + others,
        data_bytes=small * size + others * TARGET,
        small_files=small,
        small_bytes=small * size,
        records=1000,
    )


def test_target_is_policy_then_table_then_512_mib() -> None:
    policy = RewriteDataFilesPolicy()
    assert target_file_size_bytes(policy, {}) == 536_870_912
    assert target_file_size_bytes(policy, {"write.target-file-size-bytes": "7"}) == 7
    assert target_file_size_bytes(policy, {"write.target-file-size-bytes": "1"}) == 1
    assert target_file_size_bytes(rewrite_policy(), {"write.target-file-size-bytes": "7"}) == TARGET


@pytest.mark.parametrize("text", ["", "0", "-1", "512MB", "1.5", " 7"])
def test_target_property_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write\.target-file-size-bytes is '.*', not a positive"):
        target_file_size_bytes(RewriteDataFilesPolicy(), {"write.target-file-size-bytes": text})


def test_limits_are_75_and_180_percent() -> None:
    assert size_limits(rewrite_policy(), TARGET) == LIMITS
    assert size_limits(rewrite_policy(), 101) == SizeLimits(75, 181)


def test_write_max_is_half_way_to_large() -> None:
    assert write_max_file_size_bytes(TARGET, LIMITS) == 140
    assert write_max_file_size_bytes(101, SizeLimits(75, 181)) == 141


@pytest.mark.parametrize(
    ("size", "files"),
    [
        (0, 1),
        (1, 1),
        (99, 1),
        (100, 1),
        (110, 1),  # the remainder is spread: 10 % more is still one file (1.1 * 100 > 110 in floats)
        (111, 2),
        (175, 2),
        (176, 2),  # the remainder is a file of good size
        (200, 2),
        (221, 2),
        (222, 3),
        (1010, 10),
        (1075, 10),  # a remainder of exactly the small size is spread
        (1076, 11),
        (1099, 11),
    ],
)
def test_expected_output_files_round_as_iceberg(size: int, files: int) -> None:
    assert expected_output_files(size, TARGET, LIMITS) == files


@settings(max_examples=examples(500), deadline=None)
@given(
    size=st.integers(0, 10_000),
    target=st.integers(2, 500),
    small=st.fractions(0, 1, max_denominator=20),
    large=st.fractions(1, 3, max_denominator=20),
)
def test_expected_output_files_equals_a_port_of_icebergs(
    size: int, target: int, small: Fraction, large: Fraction
) -> None:
    limits = SizeLimits(int(target * small), int(target * large))
    write_max = int(target + (limits.large_above_bytes - target) * 0.5)
    if size < target:
        expected = 1
    else:
        with_remainder, without = math.ceil(Fraction(size, target)), size // target
        average = size // without
        if size % target > limits.small_below_bytes:
            expected = with_remainder
        elif average < min(1.1 * target, float(write_max)):
            expected = without
        else:
            expected = with_remainder
    assert expected_output_files(size, target, limits) == expected


def test_healthy_partition_has_no_findings() -> None:
    assert reasons(smalls(0, others=50)) == []
    assert reasons(PartitionHealth()) == []


@pytest.mark.parametrize(("files", "found"), [(4, False), (5, True)])
def test_small_files_need_min_input_files(files: int, found: bool) -> None:
    assert bool(reasons(smalls(files))) is found


@pytest.mark.parametrize(
    ("others", "found"),
    # 5 small ones become 1: 4 fewer, not more than 4, so the share of all files decides
    [(35, True), (36, False)],
)
def test_small_files_need_a_share_of_all_files(others: int, found: bool) -> None:
    assert excess_files(smalls(5, others=others), rewrite_policy(), TARGET) == 4
    assert bool(reasons(smalls(5, others=others))) is found


@pytest.mark.parametrize(("files", "found"), [(5, False), (6, True)])
def test_small_files_or_more_excess_files_than_allowed(files: int, found: bool) -> None:
    assert bool(reasons(smalls(files, others=1000))) is found


def test_small_files_that_cannot_shrink_are_no_finding() -> None:
    # 5 files of 74: 370 bytes make 4 files, one fewer: due by share; at 2 of 74, none
    assert reasons(smalls(5, 74)) == [(Reason.SMALL_FILES, Severity.ERROR)]
    assert reasons(smalls(2, 74), min_input_files=2) == []


def test_small_files_finding_names_metric_value_threshold_and_key() -> None:
    (found,) = findings(smalls(12), rewrite_policy(), TARGET, NOW_MS)
    assert (found.check, found.metric, found.value, found.threshold, found.threshold_key) == (
        Check.SMALL_FILES,
        "small_files",
        12,
        5,
        "rewrite_data_files.min_input_files",
    )


@pytest.mark.parametrize(
    ("files", "size", "found"),
    [(10, 50, False), (11, 50, True), (11, 74, True), (11, 75, False), (11, 80, False)],
)
def test_too_many_files_counts_files_and_their_average(files: int, size: int, found: bool) -> None:
    health = PartitionHealth(data_files=files, data_bytes=files * size)
    assert (reasons(health, max_files=10) == [(Reason.TOO_MANY_FILES, Severity.ERROR)]) is found


def test_too_many_files_average_is_its_own_key() -> None:
    health = PartitionHealth(data_files=11, data_bytes=11 * 80)
    assert reasons(health, max_files=10, max_files_average_bytes=81) == [
        (Reason.TOO_MANY_FILES, Severity.ERROR)
    ]


def test_too_many_files_that_cannot_shrink_are_no_finding() -> None:
    health = PartitionHealth(data_files=11, data_bytes=11 * 100)
    assert reasons(health, max_files=10, max_files_average_bytes=1000) == []


@pytest.mark.parametrize(
    ("marked", "severity"),
    [(0, None), (99, None), (100, Severity.WARN), (299, Severity.WARN), (300, Severity.ERROR)],
)
def test_delete_ratio_warns_then_acts(marked: int, severity: Severity | None) -> None:
    half = marked // 2
    health = PartitionHealth(
        records=1000, position_delete_records=half, deletion_vector_records=marked - half
    )
    assert reasons(health) == ([(Reason.DELETE_RATIO, severity)] if severity else [])


def test_delete_ratio_off_is_silent() -> None:
    health = PartitionHealth(records=10, deletion_vector_records=10)
    assert reasons(health, delete_ratio_act=None) == [(Reason.DELETE_RATIO, Severity.WARN)]
    assert reasons(health, delete_ratio_act=None, delete_ratio_warn=None) == []


def test_delete_ratio_threshold_of_zero_needs_a_delete() -> None:
    assert reasons(PartitionHealth(records=10), delete_ratio_act=0.0) == []


@pytest.mark.parametrize(("files", "found"), [(3, False), (4, True)])
def test_delete_files_count_positions_and_vectors(files: int, found: bool) -> None:
    health = PartitionHealth(
        records=1000, position_delete_files=1, deletion_vectors=files - 1, equality_delete_files=50
    )
    assert (reasons(health, max_delete_files=3) == [(Reason.DELETE_FILES, Severity.ERROR)]) is found


@pytest.mark.parametrize(("age_seconds", "severity"), [(3599, Severity.WARN), (3600, Severity.ERROR)])
def test_equality_deletes_are_due_by_age(age_seconds: int, severity: Severity) -> None:
    health = PartitionHealth(
        applicable_equality_delete_files=1, oldest_equality_delete_ms=NOW_MS - age_seconds * 1000
    )
    assert reasons(health) == [(Reason.EQUALITY_DELETES, severity)]


def test_equality_deletes_of_unknown_age_are_due() -> None:
    health = PartitionHealth(applicable_equality_delete_files=1)
    assert reasons(health) == [(Reason.EQUALITY_DELETES, Severity.ERROR)]


def test_equality_deletes_off_or_not_applicable_are_silent() -> None:
    health = PartitionHealth(applicable_equality_delete_files=1)
    assert reasons(health, equality_delete_max_age_seconds=None) == []
    assert reasons(PartitionHealth(equality_delete_files=9)) == []


def test_score_is_the_worst_grave_multiple() -> None:
    warned = finding(value=100, threshold=1, severity=Severity.WARN)
    lower, higher = finding(value=10, threshold=5), finding(Reason.DELETE_RATIO, value=0.9, threshold=0.3)
    assert score((warned,)) == 0.0
    assert not is_due((warned,))
    assert score((warned, lower, higher)) == pytest.approx(3.0)
    assert worst((warned, lower, higher)) is higher
    assert is_due((warned, lower))


def test_score_of_a_threshold_of_zero_is_large_not_infinite() -> None:
    assert 1e6 < score((finding(value=1, threshold=0),)) < math.inf
