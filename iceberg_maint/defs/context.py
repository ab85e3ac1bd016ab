"""Catalogs, ledger, policy and engine of the Dagster layer, as one value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint.config import redact, redact_error
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.housekeeping import held_back
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import REMOVING_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.errors import IcebergMaintError, UnknownTableError
from iceberg_maint.ports.catalog import Catalog
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import Engine
from iceberg_maint.ports.ledger import Ledger, Report
from iceberg_maint.ports.storage import OrphanFiles
from iceberg_maint.runner.assess import Tools, decide_stored, no_store_clock
from iceberg_maint.runner.clocks import read_clocks

_log = logging.getLogger(__name__)

SessionFactory = Callable[[], Any]
"""Returns the process's Spark session; the first call starts it."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Catalogs, ledger, policy and engine. Building one connects to nothing.

    `policy_for(table, properties)` is the effective policy; `spark_conf()` the settings of the
    session; `engine_of(session)` an engine that starts it only when it has something to write;
    `orphan_files(table)` the orphan pass of a table; `store_now_ms(state)` the clock of a table's store.
    `secrets` are values that must never reach Dagster.
    """

    catalogs: Mapping[str, Catalog]
    ledger: Ledger
    clock: Clock
    policy_for: Callable[[TableId, Mapping[str, str]], Policy]
    spark_conf: Callable[[], Mapping[str, str]]
    engine_of: Callable[[SessionFactory], Engine]
    orphan_files: Callable[[TableId], OrphanFiles]
    store_now_ms: Callable[[TableState], int | None] = no_store_clock
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def catalog_of(self, table: TableId) -> Catalog:
        """The table's catalog. Raises UnknownTableError for one the configuration lacks."""
        try:
            return self.catalogs[table.catalog]
        except KeyError:
            raise UnknownTableError(
                "ICM-126",
                f"{table}: the configuration has no catalog '{table.catalog}'.",
                f"name one of {', '.join(sorted(self.catalogs))}.",
            ) from None

    def policy_of(self, state: TableState) -> Policy:
        """The effective policy of a pinned table."""
        return self.policy_for(state.table, state.properties)

    def tools(self, table: TableId, engine: Callable[[], Engine]) -> Tools:
        """The ports that `assess` and `maintain` use for this table."""
        return Tools(
            self.catalog_of(table),
            self.ledger,
            self.clock,
            engine,
            lambda: self.orphan_files(table),
            self.masked,
            self.store_now_ms,
        )

    def masked(self, text: str) -> str:
        """The text without secrets."""
        return redact(text, self.secrets)

    def redacted_error(self, error: Exception) -> Exception:
        """The error without secrets, to log or to raise."""
        return redact_error(error, self.secrets)

    def pointers(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """Metadata pointers of the tables whose catalog answers; one request per catalog."""
        by_catalog: dict[str, list[TableId]] = {}
        for table in tables:
            by_catalog.setdefault(table.catalog, []).append(table)
        pointers: dict[TableId, str] = {}
        for name, members in by_catalog.items():
            try:
                pointers.update(self.catalog_of(members[0]).pointers(members))
            except IcebergMaintError as why:
                _log.warning("catalog %s gives no pointers: %s", name, self.masked(str(why)))
        return pointers

    def stored_policy(self, measured: Measured) -> Policy:
        """The effective policy with the properties of the stored health."""
        return self.policy_for(measured.table, measured.maintenance_properties)

    def history(self, measured: Measured) -> TableHistory:
        """The table's history in the ledger."""
        return self._judged(measured)[0]

    def decide(self, measured: Measured) -> Decision:
        """The decision from stored health; reads no catalog."""
        return self._judged(measured)[1]

    def allows(self, measured: Measured, operation: Operation) -> bool:
        """Whether nothing stored delays this operation of housekeeping."""
        history = self.ledger.history(measured.table_uuid, str(measured.table), operation)
        policy = self.stored_policy(measured)
        if operation in REMOVING_OPERATIONS and self._clocks_disagree(measured):
            return False
        return policy.mode is Mode.ACT and not held_back(
            operation, measured, policy, history, self.clock.now_ms()
        )

    def _clocks_disagree(self, measured: Measured) -> bool:
        """Whether a run would be refused for its clocks, as far as the ledger shows."""
        updated_ms = measured.table_health.last_change_ms
        return disagreement(read_clocks(self.clock, self.ledger, updated_ms=updated_ms)) is not None

    def last_orphan_pass(self, table_uuid: str) -> Report | None:
        """The report of the table's last orphan pass, from any run."""
        return self.ledger.last_report(table_uuid, Operation.REMOVE_ORPHAN_FILES)

    def _judged(self, measured: Measured) -> tuple[TableHistory, Decision]:
        return decide_stored(measured, self.stored_policy(measured), self.ledger, self.clock.now_ms())
