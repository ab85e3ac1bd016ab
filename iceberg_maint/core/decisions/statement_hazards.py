"""Hazards: what keeps a batch from an engine whose commits pass no gate, and the names and values that its statements may have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.partition_key import PartitionField, decode_partition
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import AttestLevel

_REMOVING = frozenset({Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES})


class CannotError(Exception):
    """The engine cannot do the work of a batch. The text is the reason, a clause for people."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine writes a name, and a timestamp without a zone."""

    quote: str
    timestamp: str


ANSI, SPARK = Dialect('"', "TIMESTAMP"), Dialect("`", "TIMESTAMP_NTZ")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_EQUALITY_DELETES = ("total-equality-deletes", "added-equality-deletes")


def hazards(operation: Operation, state: TableState, policy: Policy) -> Iterator[str]:
    """Yields why no engine may do the operation on the table as it is, each as a clause."""
    if operation in _REMOVING:
        yield "an engine deletes files at once, and here every file is marked, put into the trash and swept later"
        return
    if policy.attest.level is AttestLevel.OFF:
        yield "attest.level is off, so nothing would prove its commit"
    if state.format_version > 2:
        yield f"format version {state.format_version} has row ids, which its commit may change"
    if _may_have_equality_deletes(state):
        yield "a retained snapshot has or may have equality deletes, and a commit without the gate can bring their rows back"
    live = {m.spec_id for m in state.manifests if m.added_files != 0 or m.existing_files != 0}
    if operation is Operation.REWRITE_DATA_FILES and live - {state.current_spec_id}:
        yield "files of an earlier partition spec are live, and deletes reach other rows after they move to the current one"


def _may_have_equality_deletes(state: TableState) -> bool:
    """Whether a retained snapshot states equality deletes, or delete files are live and the head does not say of which kind."""
    total, added = _EQUALITY_DELETES
    if any(s.summary.get(key, "0") != "0" for s in state.snapshots for key in (total, added)):
        return True
    unstated = state.snapshot is not None and total not in state.snapshot.summary
    return unstated and any(
        m.is_deletes and (m.added_files != 0 or m.existing_files != 0) for m in state.manifests
    )


def plain(*names: str) -> tuple[str, ...]:
    """Returns the names. Raises CannotError unless each can be written into a statement of any engine as it is."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise CannotError(f"the name '{name}' is not made of ASCII letters, digits and '_'")
    return names


def partition_filter(partitions: tuple[PartitionKey, ...], state: TableState, dialect: Dialect) -> str | None:
    """Returns the SQL condition that selects exactly these partitions of the current spec; None if they need no condition,
    because the spec has no field.

    Only numbers, dates, flags and plain words become part of a statement. Raises CannotError for other values, for several
    fields and for transforms that no condition on a column selects.
    """
    try:
        return _condition(partitions, state, dialect)
    except (ValueError, OverflowError) as why:
        raise CannotError(str(why)) from why


def _condition(partitions: tuple[PartitionKey, ...], state: TableState, dialect: Dialect) -> str | None:
    fields = [f for f in state.specs[state.current_spec_id].fields if not f.is_void]
    if not fields:
        return None
    if len(fields) > 1:
        raise CannotError("the spec has several fields")
    (field,) = fields
    name = next((n for n, i in state.column_ids.items() if i == field.source_id), "")
    if not _NAME.fullmatch(name):
        raise CannotError(f"the column of partition field '{field.name}' has no plain name")
    place = state.specs[state.current_spec_id].fields.index(field)
    column, source = f"{dialect.quote}{name}{dialect.quote}", state.key_types.get(field.source_id, "")
    values = [decode_partition(p, state.specs, state.first_spec_id)[1][place] for p in partitions]
    if field.transform == "identity":
        return f"{column} IN ({', '.join(_literal(v, source) for v in values)})"
    ranges = (_range(source, field, v) for v in values)
    return " OR ".join(
        f"({column} >= {_moment(first, source, dialect)} AND {column} < {_moment(last, source, dialect)})"
        for first, last in ranges
    )


def _literal(value: object, kind: str) -> str:
    if kind == "boolean" and isinstance(value, bool):
        return str(value).upper()
    if kind in ("int", "long") and isinstance(value, int):
        return str(value)
    if kind == "date" and isinstance(value, int):
        return _date(value)
    if kind == "string" and isinstance(value, str) and _WORD.fullmatch(value):
        return f"'{value}'"
    raise CannotError(f"a partition value of type {kind or 'unknown'} is no number, date, flag or plain word")


def _date(days: int) -> str:
    return f"DATE '{_at(timedelta(days=days)):%Y-%m-%d}'"


def _at(since_epoch: timedelta) -> datetime:
    at = datetime(1970, 1, 1, tzinfo=UTC) + since_epoch
    if at.year < 1000:
        raise CannotError("a date before the year 1000")
    return at


def _range(source: str, field: PartitionField, value: object) -> tuple[datetime, datetime]:
    """The half-open range of a column's values in one partition of a transform of time."""
    if not isinstance(value, int) or source not in ("date", "timestamp", "timestamptz"):
        raise CannotError(f"transform {field.transform} of type {source or 'unknown'}")
    if field.transform == "hour" and source != "date":
        first, last = (_at(timedelta(hours=h)) for h in (value, value + 1))
    elif field.transform == "day":
        first, last = (_at(timedelta(days=d)) for d in (value, value + 1))
    elif field.transform == "month":
        first, last = (
            _at(timedelta()).replace(year=1970 + m // 12, month=m % 12 + 1) for m in (value, value + 1)
        )
    elif field.transform == "year":
        first, last = (_at(timedelta()).replace(year=1970 + y) for y in (value, value + 1))
    else:
        raise CannotError(f"transform {field.transform} of type {source}")
    return first, last


def _moment(at: datetime, source: str, dialect: Dialect) -> str:
    if source == "date":
        return f"DATE '{at:%Y-%m-%d}'"
    if source == "timestamptz":
        return f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S} UTC'"
    return f"{dialect.timestamp} '{at:%Y-%m-%d %H:%M:%S}'"
