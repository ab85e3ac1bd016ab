"""Sentences on the readers of a table: what maintenance would bring into it, who does not read that, and what the other
way costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iceberg_maint.core.decisions.readers import has_marks, losing_readers, marks_of
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.unread_output import refused_output, unread_output
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    RewriteDataFiles,
    RewritePositionDeleteFiles,
    Strategy,
)
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint.core.policy.readers import UNREAD
from iceberg_maint.report.formatting import size


def readers_sentence(
    measured: Measured, policy: Policy, properties: Mapping[str, str], batches: Sequence[Batch] | None = None
) -> str:
    """Returns what readers may lose or keep, "" if nothing is at stake. `policy` is that of the configuration,
    `properties` are the table's. Without `batches` the sentence is on what a plan may contain."""
    on_marks = _on_marks(measured, policy, properties, batches)
    return "; ".join(filter(None, (on_marks, _on_output(policy, properties, batches))))


def _on_output(policy: Policy, properties: Mapping[str, str], batches: Sequence[Batch] | None) -> str:
    if batches is None:
        columnar = policy.rewrite_data_files.strategy is RewriteStrategy.COLUMNAR
        refused = refused_output(unread_output(properties, (), columnar=columnar), policy.readers)
        return f"a run may be refused (ICM-182): {refused}" if refused else ""
    rewrites = [b for b in batches if isinstance(b.work, RewriteDataFiles)]
    found = (unread_output(properties, b.groups, columnar=b.strategy is Strategy.COLUMNAR) for b in rewrites)
    if (feature := next(filter(None, found), None)) is None:
        return ""
    refused = refused_output(feature, policy.readers)
    unread = f"writes {feature}: not read by {_names(sorted(UNREAD[feature]))}"
    return f"a run is refused (ICM-182): {refused}" if refused else unread


def _on_marks(
    measured: Measured, policy: Policy, properties: Mapping[str, str], batches: Sequence[Batch] | None
) -> str:
    total, marks = measured.total(), marks_of(measured, properties)
    equality = total.equality_delete_files > 0 and policy.equality_deletes.route is not Route.REWRITE
    if (lost := losing_readers(measured, policy, properties)) and (equality or total.position_delete_files):
        why = f"{_names(lost)} would lose the table, and the policy key readers is not set"
        if policy.readers:
            why = f"{_names(lost)} of the policy key readers would lose the table"
        return f"no {marks.value}: {why}; {_instead(batches) if equality else 'position delete files stay'}"
    marking = [b for b in batches or () if _marks(b)]
    if has_marks(measured) or not (marking or (batches is None and equality)):
        return ""
    unread = UNREAD[marks]
    who = f"not read by {_names(sorted(unread))}" if unread else "read by every engine of the record"
    other = ""
    if unread and marking:
        files = sum(f.size_bytes for b in marking for g in b.groups for f in g.files)
        other = f"; a rewrite of the data files would read and write {size(2 * files)}"
    brings = "brings" if marking else "may bring"
    return f"{brings} {marks.value} into the table, which has none: {who}{other}"


def _instead(batches: Sequence[Batch] | None) -> str:
    """What the rewrite in place of a conversion costs."""
    cleaned = [b for b in batches or () if b.equality_deletes and b.input_files]
    if not cleaned:
        return "equality deletes are applied by rewriting data files"
    files = sum(f.size_bytes for b in cleaned for g in b.groups for f in g.files)
    return f"the data files under equality deletes are rewritten: {size(2 * files)} read and written"


def _marks(batch: Batch) -> bool:
    """Whether the batch may write position deletes or deletion vectors."""
    match batch.work:
        case ConvertEqualityDeletes():
            return bool(batch.groups)
        case RewritePositionDeleteFiles() as work:
            return any(not d.void for d in work.position_deletes)
        case _:
            return False


def _names(readers: Iterable[str]) -> str:
    *first, last = readers
    return f"{', '.join(first)} and {last}" if first else last
