"""A fake orphan scan without storage, for tests of its callers."""

from __future__ import annotations

from collections.abc import Callable

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import UnloggedMetadata
from iceberg_maint.core.removal.released_file_rules import Release
from iceberg_maint.ports.storage import OrphanWork, ReleasedWork

NOTHING_FOUND = OrphanWork(listed_files=10, listed_bytes=100, orphan_files=0, orphan_bytes=0)


class FakeOrphanFiles:
    """A fake `ports.storage.OrphanFiles` that returns the given work. `swept` and `took_released` record the
    arguments of each pass, `releases` the stored releases until `remove_released` takes them, `approved` the digests."""

    def __init__(self, work: OrphanWork = NOTHING_FOUND, released: ReleasedWork | None = None) -> None:
        self.work = work
        self.released = released or ReleasedWork()
        self.swept: list[bool] = []
        self.took_released: list[bool] = []
        self.takes_released = True
        self.releases: list[Release] = []
        self.approved: list[str] = []

    def run(
        self,
        _state: TableState,
        _policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        sweep: bool,
        holds: Callable[[], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> OrphanWork:
        """Returns the given work at once."""
        self.swept.append(sweep)
        self.took_released.append(self.takes_released)
        self.takes_released = True
        return self.work

    def leaving_released(self) -> FakeOrphanFiles:
        """The fake itself, whose next pass leaves released files."""
        self.takes_released = False
        return self

    def approving(self, digest: str) -> FakeOrphanFiles:
        """The fake itself, which keeps the digest."""
        self.approved.append(digest)
        return self

    def record_release(self, _state: TableState, _policy: RemoveOrphanFilesPolicy, release: Release) -> None:
        """Keeps the release."""
        self.releases.append(release)

    def remove_released(
        self,
        _state: TableState,
        _policy: RemoveOrphanFilesPolicy,
        *,
        in_flight: frozenset[str],
        holds: Callable[[], bool],
    ) -> ReleasedWork:
        """Forgets the releases and returns the given work."""
        self.releases.clear()
        return self.released

    def second_owner(self, _state: TableState, _policy: RemoveOrphanFilesPolicy) -> UnloggedMetadata:
        """None."""
        return UnloggedMetadata(0, ())
