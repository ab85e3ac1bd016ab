"""A fake orphan pass without storage, for tests of its callers."""

from __future__ import annotations

from collections.abc import Callable

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.unlogged_metadata import UnloggedMetadata
from iceberg_maint.ports.storage import OrphanWork

NOTHING_FOUND = OrphanWork(listed_files=10, listed_bytes=100, orphan_files=0, orphan_bytes=0)


class FakeOrphanFiles:
    """A fake `ports.storage.OrphanFiles` that returns the given work. `swept` records the `sweep`
    argument of each pass."""

    def __init__(self, work: OrphanWork = NOTHING_FOUND) -> None:
        self.work = work
        self.swept: list[bool] = []

    def run(
        self,
        _state: TableState,
        _policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],  # noqa: ARG002 - the port's signature
        sweep: bool,
        holds: Callable[[], bool],  # noqa: ARG002 - same
    ) -> OrphanWork:
        """Returns the given work at once."""
        self.swept.append(sweep)
        return self.work

    def second_owner(self, _state: TableState, _policy: RemoveOrphanFilesPolicy) -> UnloggedMetadata:
        """None."""
        return UnloggedMetadata(0, ())
