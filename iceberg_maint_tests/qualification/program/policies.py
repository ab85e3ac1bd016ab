"""What a program draws for a maintenance run: policies and partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iceberg_maint.core.policy.data import (
    LayoutPolicy,
    OutputSpec,
    Policy,
    ProofLevel,
    RewritePositionDeleteFilesPolicy,
    RewriteStrategy,
    Route,
)
from iceberg_maint.core.policy.housekeeping import (
    DAY_SECONDS,
    ExpireSnapshotsPolicy,
    RemoveOrphanFilesPolicy,
    RewriteManifestsPolicy,
)
from iceberg_maint_tests.qualification.program.kinds import STRUCTS
from iceberg_maint_tests.qualification.program.second_lines import SecondLines
from iceberg_maint_tests.support.spark.equality.maintainer import policy_of


@dataclass
class Policies(SecondLines):
    """Draws policies for the table as it is."""

    def _policy(self, *, compact: bool, rewrite: bool) -> Policy:
        """`compact`: all small files are rewritten. `rewrite`: most equality deletes are applied by rewrites, because
        Iceberg itself refuses a conversion whose data files were removed since its plan. The strategies take turns."""
        pick = self.rng.choice
        policy = policy_of(
            pick([Route.AUTO, Route.CONVERT, *[Route.REWRITE] * (4 if rewrite else 1)]),
            min_input_files=2 if compact else pick([2, 5, 1000]),
            delete_ratio_act=pick([None, 0.3]),
            output_spec=pick([OutputSpec.OWN, OutputSpec.OWN, OutputSpec.CURRENT]),
            proof=pick([ProofLevel.FULL, ProofLevel.FOOTER]),
            strategy=RewriteStrategy.NATIVE if self.counts["maintain"] % 2 else RewriteStrategy.COLUMNAR,
        )
        merge = RewritePositionDeleteFilesPolicy(min_input_files=pick([1, 2, 5]), enabled=pick([True, False]))
        return replace(policy, layout=self._layout(), rewrite_position_delete_files=merge)

    def _layout(self) -> LayoutPolicy:
        sortable = [c for c, kind in self.columns.items() if kind not in (*STRUCTS, "list", "map")]
        by = tuple(self.rng.sample(sortable, 2))
        eager = {"overlap_depth_warn": None, "overlap_depth_act": 1.0}
        return self.rng.choice(
            [
                LayoutPolicy(enabled=False),
                LayoutPolicy(sort_by=(by[0], f"{by[1]} desc"), **eager),
                LayoutPolicy(z_order_by=by, **eager),
            ]
        )

    def _housekeeping(self) -> Policy:
        pick = self.rng.choice
        return replace(
            policy_of(Route.AUTO),
            rewrite_manifests=RewriteManifestsPolicy(max_manifests=1),
            expire_snapshots=ExpireSnapshotsPolicy(
                every_seconds=0,
                max_snapshot_age_seconds=pick([0, 0, 0, 10_000 * DAY_SECONDS]),
                min_snapshots_to_keep=pick([1, 2, 5, 10]),
            ),
            remove_orphan_files=RemoveOrphanFilesPolicy(
                every_seconds=0,
                older_than_seconds=pick([1, 3]) * DAY_SECONDS,
                delete_after_seconds=pick([1, 2]) * DAY_SECONDS,
                max_orphan_ratio=1.0,
            ),
        )

    def _some_partitions(self) -> frozenset[str] | None:
        if self.rng.random() < 0.7:
            return None
        keys = self.keeper.partitions(self.twin)
        return frozenset(self.rng.sample(keys, self.rng.randint(1, len(keys)))) if keys else None
