"""One table under two names: a run under the second is refused as long as the first is maintained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Process, World

OTHER = TableId.parse("rest.db.t")


class TwoNames:
    """The table of a world, which the catalog `rest` has too. `modes` are the policies' modes by catalog."""

    def __init__(self) -> None:
        self.world = World()
        self.rest = FakeCatalog("rest")
        self.modes: dict[str, Mode] = {}
        self.show()

    def show(self) -> None:
        """The catalog `rest` has what `lake` has."""
        now = self.world.now
        self.rest.put(replace(now, state=replace(now.state, table=OTHER)))

    def context(self) -> Context:
        context = self.world.context(Process())

        def policy_for(table: TableId, _properties: object) -> Policy:
            return replace(POLICY, mode=self.modes.get(table.catalog, Mode.ACT))

        return changed(context, catalogs={**context.catalogs, "rest": self.rest}, policy_for=policy_for)

    def run(self, table: TableId) -> OutcomeStatus:
        (outcome,) = maintain(
            table, Request("run", operations=(Operation.REWRITE_DATA_FILES,), force=True), self.context()
        )
        return outcome.outcome


@pytest.fixture
def two() -> TwoNames:
    two = TwoNames()
    assert two.run(TABLE) is OutcomeStatus.IMPROVED
    two.show()
    return two


def test_second_name_of_a_maintained_table_is_refused(two: TwoNames) -> None:
    commits = two.world.our_commits()
    with pytest.raises(RefusedError) as refused:
        two.run(OTHER)
    assert str(refused.value) == (
        f"ICM-162 rest.db.t is also lake.db.t, which is maintained: both have the UUID {two.world.now.state.uuid}. "
        "Fix: set mode: advise for one of the two names."
    )
    assert two.world.our_commits() == commits
    assert two.world.ledger.leases.last_leased_name(two.world.now.state.uuid) == str(TABLE)


def test_second_name_takes_over_where_the_first_only_advises(two: TwoNames) -> None:
    two.modes["lake"] = Mode.ADVISE
    two.run(OTHER)
    assert two.world.ledger.leases.last_leased_name(two.world.now.state.uuid) == str(OTHER)


def test_name_in_a_catalog_that_is_no_longer_configured_stops_nothing(two: TwoNames) -> None:
    uuid = two.world.now.state.uuid
    two.world.ledger.leases.adopt_table(uuid, "gone.db.t")
    two.run(OTHER)
    assert two.world.ledger.leases.last_leased_name(uuid) == str(OTHER)


def test_renamed_table_goes_on_under_its_new_name(two: TwoNames) -> None:
    two.world.catalog.content.clear()
    two.run(OTHER)
    assert two.world.ledger.leases.last_leased_name(two.world.now.state.uuid) == str(OTHER)


def test_second_name_is_not_maintained_while_the_first_catalog_does_not_answer(two: TwoNames) -> None:
    two.world.catalog.unreachable = True
    with pytest.raises(ConfigurationError, match="ICM-104"):
        two.run(OTHER)
