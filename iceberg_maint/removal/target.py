"""The target of an orphan scan, and what was done to the files of a trash batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from iceberg_maint.core.model.location import Claim, Equivalences, is_within, parse_location
from iceberg_maint.core.model.table_state import TableState


@dataclass(frozen=True, slots=True)
class Emptied:
    """The result for the files of a trash batch. `left` files are still in the trash: another file is at
    their place, they differ from what was put there, or the metadata reference them in the trash. `released`: an
    expiry released the files."""

    mark_id: str
    deleted_files: int = 0
    deleted_bytes: int = 0
    restored_files: int = 0
    left_files: int = 0
    released: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A table and the scope of the search for its orphans.

    `others` are the claims of all other tables of all configured catalogs. `in_flight` are the files of
    attempts without an outcome. `exclusive_prefixes` are further locations that, as the owner declares,
    hold files of this table only. `name_of` returns the name under which the ledger knows the table with a UUID.
    """

    state: TableState
    others: tuple[Claim, ...]
    in_flight: frozenset[str] = frozenset()
    exclusive_prefixes: tuple[str, ...] = ()
    same: Equivalences = field(default_factory=Equivalences)
    name_of: Callable[[str], str | None] = lambda _uuid: None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The listed prefixes: the table's location and the declared ones, none within another."""
        places = [(p, parse_location(p, self.same)) for p in (self.state.location, *self.exclusive_prefixes)]
        return tuple(
            text
            for n, (text, place) in enumerate(places)
            if not any(
                is_within(place, other) and (m < n or not is_within(other, place))
                for m, (_, other) in enumerate(places)
                if m != n
            )
        )
