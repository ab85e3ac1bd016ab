"""Writes the reference pages, and the tables of others, that follow from the code: `make reference`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import groupby
from pathlib import Path

import click

from docs.dashboards import files
from docs.monitors import monitor_files
from iceberg_maint.cli import COMMANDS, iceberg_maint
from iceberg_maint.config.policy_keys import rule
from iceberg_maint.core.health.metrics import DERIVED_METRICS, PartitionHealth, TableHealth, metric_docs
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.policy.data import PolicyKey, policy_keys
from iceberg_maint.integrations.frames import COLUMNS, Column
from iceberg_maint.integrations.telemetry.catalogue import CATALOGUE, RUN, TABLE
from iceberg_maint.integrations.telemetry.series import DURATION_BUCKETS_SECONDS, Series

DOCS = Path(__file__).resolve().parent
REFERENCE = DOCS / "reference"
DECISIONS = DOCS / "design" / "decisions"
WIDTH = 100
ENGINES = ("PyIceberg", "Polars", "Daft", "DuckDB", "ClickHouse")

CLI_HEAD = """\
# Command line

The text that `--help` prints, for every command. Each also takes `--config PATH`, `--json` and `--help`, before or after its name.
What scripts may rely on (exit codes, JSON documents) is in the [contract](contract.md).

"""

METRICS_HEAD = """\
# Health metrics

Every number that the program measures, from metadata alone. `make reference` writes this page and a test compares it
with the code. A metric has the same name everywhere:

| Where | Name |
|---|---|
| Output of `iceberg-maint observe --json` | `health.METRIC` of the table and of each partition |
| Output of `iceberg-maint why` | `METRIC`, beside its threshold |
| Dagster, observation of a partition | `METRIC` in the entry `partition_metrics` |
| Dagster, observation of a table | `METRIC` in the entry `metrics` |

Dagster plots the few numbers that have an entry of their own, such as `files` and `size_mib`. Times are milliseconds
since epoch, UTC. A time is `null` where it is not known.

"""

FRAMES_HEAD = """\
# Frames

The columns of the pandas frames of `iceberg_maint.integrations.frames`. `make reference` writes this page and a test compares it with the
code. How to open them: [read health and outcomes as pandas frames](../how-to/frames.md).

"""

TELEMETRY_HEAD = """\
# Telemetry

Every series that the program reports. `make reference` writes this page and a test compares it with the code. How to send
them: [send metrics](../how-to/telemetry.md). What the health numbers measure: [health metrics](metrics.md).

Prometheus has `_` for dots and adds the unit (`_seconds`, `_bytes`, `_timestamp_seconds`) and, to counters, `_total`;
A counter is an increment in DogStatsD and
CloudWatch, and a sum since the start of the process in OTLP and Prometheus. Times are seconds since epoch, UTC.

Labels: `catalog`, `namespace` and `table` name the table. `operation`, `outcome` and `reason` have the words of
[reasons and outcomes](reasons.md). No label holds an id, a partition or a message, so the number of series is bounded by the
number of tables. In values every character but ASCII letters, digits, space and `_.:/=*@+-` is written as `%` and two
hexadecimal digits for each byte of UTF-8.

"""

DECISIONS_HEAD = """\
# Decisions

Each page says what holds today, why, what was rejected, and what follows. `make reference` writes this list.
"""

UNITS: tuple[tuple[str, str], ...] = (
    (r"size_histogram", "files per bin"),
    (r"spec_ids", "ids"),
    (r".*_ms", "ms since epoch"),
    (r".*bytes", "bytes"),
    (r".*_ratio", "rows per row"),
    (r"(min|max)_data_sequence_number", "sequence number"),
    (r"(|.*_)records", "rows"),
    (r".*_files|(delete_)?files_removed", "files"),
    (r"(|.*_)seconds", "seconds"),
    (r"snapshot_(id|before|after)", "snapshot id"),
    (r"runs|failed_runs|batches|commit_tries", "count"),
    (r"deletion_vectors", "deletion vectors"),
    (r"sort_ranges", "ranges"),
    (r".*overlap_depth(_sum)?", "files"),
    (r"(|.*_)(partitions|snapshots|manifests|refs|specs)", "count"),
)
"""Unit of a metric by the pattern of its name; the first that matches."""


def unit(metric: str) -> str:
    """Raises LookupError for a metric that no pattern matches."""
    for pattern, name in UNITS:
        if re.fullmatch(pattern, metric):
            return name
    raise LookupError(f"{metric} has no unit; add its pattern to UNITS in docs/reference.py")


def commands(group: click.Group, names: list[str]) -> Iterator[tuple[str, click.Command]]:
    """(full name, command) of every command below a group, groups before their own commands."""
    context = click.Context(group)
    for name in names:
        command = group.get_command(context, name)
        if command is None:
            raise LookupError(f"no command {name}")
        yield name, command
        if isinstance(command, click.Group):
            for inner, leaf in commands(command, list(command.commands)):
                yield f"{name} {inner}", leaf


COMMON_OPTIONS = re.compile(r"\n  (--config PATH|--json|-h, --help) [^\n]*(\n {10,}[^\n]*)*")


def cli_page() -> str:
    """The whole page of the command line."""
    parts = [CLI_HEAD]
    for name, command in (("", iceberg_maint), *commands(iceberg_maint, list(COMMANDS))):
        full = f"iceberg-maint {name}".rstrip()
        context = click.Context(
            command,
            info_name=full,
            terminal_width=WIDTH,
            max_content_width=WIDTH,
            help_option_names=["-h", "--help"],
        )
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        if name:
            text = COMMON_OPTIONS.sub("", text).removesuffix("\n\nOptions:")
        heading = f"### `{name}`" if " " in name else f"## `{name or full}`"
        parts.append(f"{heading}\n\n```text\n{text}\n```\n\n")
    return "".join(parts).rstrip() + "\n"


def metrics_page() -> str:
    """The whole page of metrics."""
    of_partitions = {f.name: str(f.metadata["doc"]) for f in fields(PartitionHealth)} | DERIVED_METRICS
    of_tables = {f.name: str(f.metadata["doc"]) for f in fields(TableHealth)}
    return (
        f"{METRICS_HEAD}## Of a partition\n\n"
        "The table has the same metrics, summed up over its partitions; of times and sequence numbers it has the "
        f"extremes.\n\n{_metric_table(of_partitions)}\n## Of a table only\n\n{_metric_table(of_tables)}"
    )


def _metric_table(docs: Mapping[str, str]) -> str:
    rows = "".join(f"| `{name}` | {unit(name)} | {doc} |\n" for name, doc in docs.items())
    return f"| Metric | Unit | What it measures |\n|---|---|---|\n{rows}"


def frames_page() -> str:
    """The whole page of frames. Columns that are health metrics, or of an earlier frame, are named only."""
    docs = metric_docs()
    parts = [FRAMES_HEAD]
    earlier: set[Column] = set()
    for name, columns in COLUMNS.items():
        metrics = [c for c in columns if docs.get(c.key) == c.doc and c not in earlier]
        repeated = [c for c in columns if c in earlier]
        rows = "".join(_column_row(c) for c in columns if c not in metrics and c not in earlier)
        earlier |= set(columns)
        parts.append(f"\n## `{name}`\n\n| Column | Type | Unit | What it holds |\n|---|---|---|---|\n{rows}")
        if metrics:
            names = ", ".join(f"`{c.name}`" for c in metrics)
            parts.append(f"\nAnd as [health metrics](metrics.md): {names}.\n")
        if repeated:
            parts.append(f"\nAnd as above: {', '.join(f'`{c.name}`' for c in repeated)}.\n")
    return "".join(parts).replace("\n\n\n", "\n\n")


def _column_row(column: Column) -> str:
    if column.dtype == "datetime64[ms, UTC]":
        measure = "UTC"
    else:
        measure = unit(column.key) if column.dtype.lower() in ("int64", "float64") else ""
    return f"| `{column.name}` | `{column.dtype}` | {measure} | {column.doc} |\n"


METRIC_SERIES = "iceberg_maint.table."


def telemetry_page() -> str:
    """The whole page of telemetry."""
    groups = {
        "Of an operation on a table": [s for s in CATALOGUE if s.labels[: len(RUN)] == RUN],
        "Of a table": [
            s for s in CATALOGUE if s.labels[: len(TABLE)] == TABLE and s.labels[: len(RUN)] != RUN
        ],
        "Of the program": [s for s in CATALOGUE if s.labels[: len(TABLE)] != TABLE],
    }
    parts = [TELEMETRY_HEAD]
    for heading, series in groups.items():
        common = set.intersection(*(set(s.labels) for s in series))
        labels = ", ".join(f"`{label}`" for label in series[0].labels if label in common)
        parts.append(f"## {heading}\n\nAll have the labels {labels}.\n\n")
        parts.append("| Series | Kind | Unit | More labels | What it measures |\n|---|---|---|---|---|\n")
        metrics = [s for s in series if metric_docs().get(s.name.removeprefix(METRIC_SERIES)) == s.meaning]
        parts += [_series_row(s, common) for s in series if s not in metrics]
        if metrics:
            names = ", ".join(f"`{s.name.removeprefix(METRIC_SERIES)}`" for s in metrics)
            parts.append(
                f"\nAnd, as gauges `{METRIC_SERIES}METRIC`, the [health metrics](metrics.md) {names}.\n"
            )
        parts.append("\n")
    bounds = ", ".join(f"{b:g}" for b in DURATION_BUCKETS_SECONDS)
    parts.append(f"Buckets of durations: {bounds} seconds and more.\n")
    return "".join(parts)


def _series_row(series: Series, common: set[str]) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels if label not in common)
    return f"| `{series.name}` | {series.kind.value} | {series.unit.value} | {labels} | {series.meaning} |\n"


def decisions_page() -> str:
    """The list of all decisions. The first word of a file name is its theme."""
    parts = [DECISIONS_HEAD]
    for theme, paths in groupby(sorted(DECISIONS.glob("*-*.md")), lambda path: path.stem.partition("-")[0]):
        titles = ((path, path.read_text("utf-8").partition("\n")[0].removeprefix("# ")) for path in paths)
        parts.append(f"\n## {theme.capitalize()}\n\n" + "".join(f"- [{t}]({p.name})\n" for p, t in titles))
    return "".join(parts)


def policy_row(key: PolicyKey) -> str:
    """The row of one policy key."""
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    return f"| `{key.path}` | {short_rule(rule(key.path))} | `{json.dumps(default)}` | {key.doc} |\n"


SHORT = (
    ("a whole number of at least ", "≥ "),
    ("a number of at least ", "≥ "),
    ("a whole number from ", ""),
    ("a number from ", ""),
    (" to ", ".."),
    (", or null for off", ", null"),
    (", or null", ", null"),
    ("true or false", "boolean"),
    ("a list of names", "names"),
)
"""Words of a rule -> what the table has in their place."""


def short_rule(text: str) -> str:
    """A rule as the table shows it."""
    for words, sign in SHORT:
        text = text.replace(words, sign)
    return text


def with_table(page: str, head: str, rows: str) -> str:
    """The page with other rows in the table of this heading row. Raises LookupError without that table."""
    found = re.search(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\n)*)", page, re.MULTILINE)
    if found is None:
        raise LookupError(f"no table {head}")
    return page[: found.start(1)] + rows + page[found.end(1) :]


def answers_of_readers() -> dict[str, dict[str, tuple[str, str]]]:
    """Odd table -> engine -> what it answers before and after maintenance by the default strategy."""
    tables = json.loads((DOCS / "project" / "readers.json").read_text("utf-8"))["tables"]
    return {
        name.rpartition(".")[2].replace("_", " "): answers
        for name, answers in tables.items()
        if name.startswith("lake.columnar.")
    }


def readers_rows() -> str:
    """A row for each set of answers that maintenance changes."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for name, answers in answers_of_readers().items():
        words = tuple(was if was == now else f"{was} → **{now}**" for was, now in answers.values())
        titles.setdefault(words, []).append(name)
    return "".join(
        f"| {', '.join(titles[words])} | {' | '.join(words)} |\n"
        for words in sorted(titles, key=lambda words: titles[words])
        if any("→" in word for word in words)
    )


def engines_rows() -> str:
    """A row for each engine: how many unusual tables it reads before and after maintenance, and how many only before."""
    every = list(answers_of_readers().values())
    return "".join(
        f"| {engine} | {sum(was == 'yes' for was, _ in pairs)} | {sum(now == 'yes' for _, now in pairs)} | "
        f"{sum(was == 'yes' != now for was, now in pairs)} |\n"
        for engine in ENGINES
        for pairs in [[answers[engine.lower()] for answers in every]]
    )


def pages() -> dict[str, str]:
    """Every page that follows from the code, whole or by a table of it, by its path below docs/."""
    configuration = (REFERENCE / "configuration.md").read_text("utf-8")
    reasons = (REFERENCE / "reasons.md").read_text("utf-8")
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    support = (REFERENCE / "support.md").read_text("utf-8")
    return {
        "../README.md": with_table(readme, "| Engine | Reads before | Reads after | Lost |", engines_rows()),
        "reference/support.md": with_table(support, f"| Table | {' | '.join(ENGINES)} |", readers_rows()),
        "design/decisions/index.md": decisions_page(),
        "reference/cli.md": cli_page(),
        "reference/frames.md": frames_page(),
        "reference/metrics.md": metrics_page(),
        "reference/telemetry.md": telemetry_page(),
        "reference/configuration.md": with_table(
            configuration,
            "| Key | Must be | Default | What it does |",
            "".join(map(policy_row, policy_keys())),
        ),
        "reference/reasons.md": with_table(
            reasons,
            "| Reason | What it means |",
            "".join(f"| `{r.value}` | {SENTENCES[r]} |\n" for r in Reason),
        ),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, "utf-8")
    for name, text in (files() | monitor_files()).items():
        path = DOCS.parent / "deploy" / "observability" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
