"""Notes on a plan: what it would do in mode advise, readers, and the memory of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from iceberg_maint.core.decisions.applicability import (
    UNREAD,
    has_position_deletes,
    losing_readers,
    position_delete_feature,
    slowed_readers,
)
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.columns import codec_of, writes_parquet
from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.planning.row_writer import refused_output, unread_output
from iceberg_maint.core.planning.spark_memory import NeededMemory, NeededSetting, setting_text
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    RewriteDataFiles,
    RewritePositionDeleteFiles,
    Strategy,
)
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route
from iceberg_maint.report.deferrals import ADVISE
from iceberg_maint.report.formatting import counted, duration, estimate_seconds, number, share, size
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document


def readers_sentence(
    measured: Measured, policy: Policy, properties: Mapping[str, str], batches: Sequence[Batch] | None = None
) -> str:
    """Returns what readers may lose or keep, "" if nothing is at stake. `policy` is that of the configuration,
    `properties` are the table's. Without `batches` the sentence is on what a plan may contain."""
    on_position_deletes = _on_position_deletes(measured, policy, properties, batches)
    return "; ".join(filter(None, (on_position_deletes, _on_output(policy, properties, batches))))


def codec_sentence(properties: Mapping[str, str], batches: Sequence[Batch] | None = None) -> str:
    """Returns which codec rewritten data files have. "" if the plan with these `batches` rewrites none, and for a table that
    writes another format than Parquet."""
    rewrites = batches is None or any(isinstance(b.work, RewriteDataFiles) for b in batches)
    if not rewrites or not writes_parquet(properties):
        return ""
    declared = codec_of(properties)
    return (
        f"{declared}, which the table declares"
        if declared
        else "that of most input bytes; the table declares none"
    )


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


def _on_position_deletes(
    measured: Measured, policy: Policy, properties: Mapping[str, str], batches: Sequence[Batch] | None
) -> str:
    total, feature = measured.total(), position_delete_feature(measured, properties)
    equality = total.equality_delete_files > 0 and policy.equality_deletes.route is not Route.REWRITE
    if (lost := losing_readers(measured, policy, properties)) and (equality or total.position_delete_files):
        why = f"{_names(lost)} would lose the table, and the policy key readers is not set"
        if policy.readers:
            why = f"{_names(lost)} of the policy key readers would lose the table"
        return f"no {feature.value}: {why}; {_instead(batches) if equality else 'position delete files stay'}"
    if (slowed := slowed_readers(policy)) and equality:
        why = f"they slow down {_names(slowed)} of the policy key readers"
        return f"no {feature.value}: {why}; {_instead(batches)}"
    writing = [b for b in batches or () if _writes_position_deletes(b)]
    if has_position_deletes(measured) or not (writing or (batches is None and equality)):
        return ""
    unread = UNREAD[feature]
    who = f"not read by {_names(sorted(unread))}" if unread else "read by every engine of the record"
    other = ""
    if unread and writing:
        files = sum(f.size_bytes for b in writing for g in b.groups for f in g.files)
        other = f"; a rewrite of the data files would read and write {size(2 * files)}"
    brings = "brings" if writing else "may bring"
    return f"{brings} {feature.value} into the table, which has none: {who}{other}"


def _instead(batches: Sequence[Batch] | None) -> str:
    """What the rewrite in place of a conversion costs."""
    cleaned = [b for b in batches or () if b.equality_deletes and b.input_files]
    if not cleaned:
        return "equality deletes are applied by rewriting data files"
    files = sum(f.size_bytes for b in cleaned for g in b.groups for f in g.files)
    return f"the data files under equality deletes are rewritten: {size(2 * files)} read and written"


def _writes_position_deletes(batch: Batch) -> bool:
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


def spark_memory_document(needed: NeededMemory | None, settings: Sequence[NeededSetting]) -> Document | None:
    """The key `spark_memory` of `plan --json`: None if the plan applies no equality deletes."""
    if needed is None or not settings:
        return None
    return {
        "one_pass_bytes": needed.one_pass_bytes,
        "settings": [
            {
                "name": s.name,
                "needed_bytes": s.needed_bytes,
                "declared_bytes": s.declared_bytes,
                "short": s.is_short,
            }
            for s in settings
        ],
    }


def draw_spark_memory(
    console: Console, needed: NeededMemory | None, settings: Sequence[NeededSetting]
) -> None:
    """Draws a line with what the equality deletes of a plan need; nothing without any."""
    if needed is None or not settings:
        return
    texts = [
        f"{s.name} {'of more than any machine has' if s.needed_bytes is None else setting_text(s.needed_bytes)} "
        f"({setting_text(s.declared_bytes)} declared)"
        for s in settings
    ]
    one_pass = needed.one_pass_bytes
    once = (
        f"; {setting_text(one_pass)} to read the data once"
        if one_pass is not None and needed.executor_bytes is not None and one_pass > needed.executor_bytes
        else ""
    )
    console.print()
    write(console, f"equality deletes need at least {', '.join(texts)}{once}")


@dataclass(frozen=True, slots=True)
class Advice:
    """The plans of the operations on data of one table. The gain is the difference between `input_files`,
    which are data files and delete files, and the `output_files` that the plans expect.
    `planned_partitions` are those of the batches of the next run: fewer than the due ones if its budget ends
    first. `estimate_seconds` is None if no batch that reads data has been committed yet."""

    due_partitions: int
    partitions: int
    batches: int
    input_files: int
    output_files: int
    input_bytes: int
    estimate_seconds: float | None
    planned_partitions: int

    def sentence(self) -> str:
        """What a run would do, and what holds it."""
        if not self.batches:
            return (
                f"{share(self.due_partitions, self.partitions, 'partition')} due, but a run would "
                f"gain nothing. Deferred by {ADVISE}."
            )
        seconds = "" if self.estimate_seconds is None else f", about {duration(self.estimate_seconds)}"
        rest = self.due_partitions - self.planned_partitions
        later = (
            f" {counted(rest, 'more due partition waits', 'more due partitions wait')} for later runs."
            if rest
            else ""
        )
        return (
            f"A run would maintain {number(self.planned_partitions)} of {counted(self.partitions, 'partition')} in "
            f"{counted(self.batches, 'batch', 'batches')}: {counted(self.input_files, 'file')} with "
            f"{size(self.input_bytes)} become {counted(self.output_files, 'file')}{seconds}."
            f"{later} Deferred by {ADVISE}."
        )


def advice_of(
    decision: Decision, plans: Sequence[Plan], partitions: int, records: Iterable[Record]
) -> Advice:
    """The advice from the plans of a decision in mode advise; `partitions` is their number in the table."""
    batches = [b for p in plans if p.operation not in HOUSEKEEPING_OPERATIONS for b in p.batches]
    input_bytes = sum(b.input_bytes for b in batches)
    return Advice(
        due_partitions=len(decision.backlog()),
        partitions=partitions,
        batches=len(batches),
        input_files=sum(b.input_files for b in batches),
        output_files=sum(b.expected_output_files for b in batches),
        input_bytes=input_bytes,
        estimate_seconds=estimate_seconds(input_bytes, records),
        planned_partitions=len({p for b in batches for p in b.partitions}),
    )


def advice_document(advice: Advice | None) -> Document | None:
    """The advice in `tables --json` and `why --json`."""
    return None if advice is None else {**asdict(advice), "deferred_by": ADVISE}
