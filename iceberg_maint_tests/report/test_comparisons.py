"""What a passing check shows: the names of the findings it would have, and the first threshold to cross."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import findings
from iceberg_maint.core.model.reasons import CHECKS_OF_PARTITIONS, Check
from iceberg_maint.core.policy.data import LayoutPolicy, Policy, RewriteDataFilesPolicy
from iceberg_maint.report.comparisons import limits
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of

POLICY = Policy(
    rewrite_data_files=RewriteDataFilesPolicy(
        min_input_files=5, delete_ratio_warn=0.1, delete_ratio_act=0.3, max_delete_files=10
    ),
    layout=LayoutPolicy(overlap_depth_warn=2.0, overlap_depth_act=4.0),
)
# Four files that overlap twice as deeply as sorted ones, and 5 % of whose rows are deleted.
HEALTH = PartitionHealth(
    data_files=4, small_files=4, data_bytes=400, small_bytes=400, records=100, position_delete_records=5,
    position_delete_files=3, dangling_delete_files=1, sort_ranges=4, overlap_depth_sum=8,
)  # fmt: skip


def shown(check: str, health: PartitionHealth, policy: Policy = POLICY) -> dict[str, tuple[float, float]]:
    return limits(check, health, measured_of({"p=a": health}), policy, NOW_MS)


def test_limits_are_those_the_findings_are_judged_by() -> None:
    deletes = {
        "delete_ratio": (0.05, 0.1),
        "delete_files": (2, 10),
        "applicable_equality_delete_files": (0, 1),
        "dangling_equality_delete_files": (0, 1),
        "mergeable_delete_files": (0, 5),
        "dangling_position_delete_files": (1, 1),
    }
    assert {check: shown(check, HEALTH) for check in CHECKS_OF_PARTITIONS} == {
        Check.SMALL_FILES: {"small_files": (4, 5)},
        Check.DELETE_FILES: deletes,
        Check.LAYOUT: {"overlap_depth": (2.0, 2.0)},
    }
    sick = replace(
        HEALTH, small_files=6, data_files=6, position_delete_records=20, position_delete_files=13,
        sort_ranges=6, overlap_depth_sum=15,
    )  # fmt: skip
    found = findings(sick, POLICY.rewrite_data_files, 1_000_000, 0, POLICY.layout)
    compared = {(m, v) for check in CHECKS_OF_PARTITIONS for m, (v, _) in shown(check, sick).items()}
    assert {(f.metric, f.value) for f in found} <= compared


def test_metric_without_a_threshold_is_not_shown() -> None:
    rewrite = RewriteDataFilesPolicy(
        delete_ratio_warn=None,
        delete_ratio_act=None,
        max_delete_files=None,
        equality_delete_max_age_seconds=None,
        max_files=None,
    )
    policy = Policy(rewrite_data_files=rewrite, layout=LayoutPolicy(enabled=False))
    assert {check: [*shown(check, HEALTH, policy)] for check in CHECKS_OF_PARTITIONS} == {
        Check.SMALL_FILES: ["small_files"],
        Check.DELETE_FILES: ["mergeable_delete_files", "dangling_position_delete_files"],
        Check.LAYOUT: [],
    }
