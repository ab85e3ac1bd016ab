"""Policy: the settings of a table's maintenance, as values. The defaults are the built-in policy.

Every field is one documented key: `section.name` in YAML, `maintenance.section.name` as a table property. None is off."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum

from iceberg_maint.core.policy.housekeeping import (
    GIBIBYTE,
    AlertsPolicy,
    AttestPolicy,
    ExpireSnapshotsPolicy,
    HealthPolicy,
    RemoveOrphanFilesPolicy,
    RewriteManifestsPolicy,
    engines_key,
    key,
)
from iceberg_maint.core.policy.runs import (
    ForeignMaintainersPolicy,
    RetryPolicy,
    WindowsPolicy,
    WriteAuditPublishPolicy,
)

DEFAULT_TARGET_FILE_SIZE_BYTES = 512 * 1024 * 1024


class Mode(StrEnum):
    """`advise` measures, plans and reports, and changes nothing. `act` also executes."""

    ADVISE = "advise"
    ACT = "act"


class ProofLevel(StrEnum):
    """The proof of a rewrite: `full` fingerprints every row in and out; `footer` compares counts and bounds."""

    FULL = "full"
    FOOTER = "footer"


class Reader(StrEnum):
    """An engine that may be named in the policy key `readers`."""

    CLICKHOUSE = "clickhouse"
    DAFT = "daft"
    DUCKDB = "duckdb"
    POLARS = "polars"
    PYICEBERG = "pyiceberg"
    SPARK = "spark"


class RewriteStrategy(StrEnum):
    """How `rewrite_data_files` writes rows that keep their order.

    `native` uses Spark's reader and writer. `columnar` rewrites file groups that qualify with Arrow and the others
    with `native`. `auto` uses `columnar` only for file groups that `native` cannot read.
    """

    AUTO = "auto"
    COLUMNAR = "columnar"
    NATIVE = "native"


class OutputSpec(StrEnum):
    """The partition spec of the written files: each source's `own`, or the table's `current` one."""

    OWN = "own"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class RewriteDataFilesPolicy:
    """Section `rewrite_data_files`."""

    enabled: bool = key(True, "whether data files are rewritten")
    engines: tuple[str, ...] = engines_key()
    target_file_size_bytes: int | None = key(
        None,
        "size to aim at; null: the table's write.target-file-size-bytes, else 512 MiB",
        minimum=1024,
    )
    small_file_ratio: float = key(
        0.75, "a data file below this share of the target is small", minimum=0.0, maximum=1.0
    )
    min_input_files: int = key(
        5,
        "fewest small files that make a partition due, if a rewrite removes five files or a tenth of the partition's",
        minimum=2,
    )
    max_files: int | None = key(
        None,
        "due when a partition has more files than this and their average is below max_files_average_bytes",
        minimum=1,
    )
    max_files_average_bytes: int | None = key(
        None, "the average size below which max_files applies; null: the small-file size", minimum=1
    )
    delete_ratio_warn: float | None = key(0.1, "delete ratio at which the check warns", minimum=0.0)
    delete_ratio_act: float | None = key(
        0.3, "delete ratio at which a rewrite that applies the deletes is due", minimum=0.0
    )
    max_delete_files: int | None = key(
        None, "due when a partition has more delete files than this", minimum=0
    )
    equality_delete_max_age_seconds: int | None = key(
        3600, "age at which applicable equality deletes are due; null: never", minimum=0
    )
    output_spec: OutputSpec = key(
        OutputSpec.OWN,
        "spec of the written files: own keeps every partition's spec, current moves old-spec "
        "files to the table's current spec",
    )
    max_group_bytes: int = key(10 * GIBIBYTE, "maximum input bytes of one file group", minimum=1)
    max_concurrent_groups: int = key(2, "number of file groups written at the same time", minimum=1)
    proof: ProofLevel = key(ProofLevel.FULL, "how a rewrite is proved before its commit")
    independent_sample: float = key(
        0.1,
        "with proof full, the share of columnar batches of which Iceberg's reader decodes a sample of rows again; 0: none",
        minimum=0.0,
        maximum=1.0,
    )
    strategy: RewriteStrategy = key(
        RewriteStrategy.COLUMNAR,
        "how rows are written: columnar by Arrow where a file group qualifies, native by Spark, auto by Arrow only "
        "where Spark cannot read a column",
    )


@dataclass(frozen=True, slots=True)
class RewritePositionDeleteFilesPolicy:
    """Section `rewrite_position_delete_files`."""

    enabled: bool = key(
        True,
        "whether position deletes are rewritten; one position delete or deletion vector that deletes no row of a live "
        "data file makes a partition due",
    )
    min_input_files: int | None = key(
        5,
        "due at this many position delete files beyond one per data file; in format v3, which replaces them by "
        "deletion vectors, at this many position delete files in all; null: never",
        minimum=1,
    )


class Route(StrEnum):
    """How equality deletes are cleaned: `convert` replaces them by position deletes or deletion vectors,
    `rewrite` rewrites the data files without the rows, `auto` takes the route with the lower cost."""

    AUTO = "auto"
    CONVERT = "convert"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class EqualityDeletesPolicy:
    """Section `equality_deletes`: the route and the memory for cleaning them."""

    route: Route = key(
        Route.AUTO,
        "convert to position deletes or deletion vectors, rewrite the data files, or by cost; a conversion appears in "
        "the table's streams: write rewrite if a streaming reader must not see it",
    )
    memory: int | None = key(
        None,
        "bytes of execution memory that applying them may take at once; null: half of what Spark has",
        minimum=1024**2,
    )
    scratch: int | None = key(
        None,
        "bytes of shuffle files that applying them may take on disk; more is done in passes; null: no limit",
        minimum=1024**2,
    )


@dataclass(frozen=True, slots=True)
class LayoutPolicy:
    """Section `layout`: the columns that files are sorted by, and the drift that is allowed."""

    enabled: bool = key(
        True, "whether sort drift is measured and drifted files are sorted again; needs a sort order"
    )
    sort_by: tuple[str, ...] = key(
        (), "columns to sort by, ' desc' after a name for descending; empty: the table's own sort order"
    )
    z_order_by: tuple[str, ...] = key((), "columns of a z-order, in place of a sort order")
    overlap_depth_warn: float | None = key(
        2.0, "overlap depth, as a multiple of the ideal one, above which the check warns", minimum=1.0
    )
    overlap_depth_act: float | None = key(
        4.0,
        "overlap depth, as a multiple of the ideal one, above which files are sorted again, if that lowers it by a fifth",
        minimum=1.0,
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """The effective policy of one table."""

    mode: Mode = key(Mode.ACT, "act, or advise: measure, plan and report only")
    paused: bool = key(False, "do not maintain the table")
    readers: tuple[Reader, ...] = key(
        (),
        "engines that read the table (clickhouse, daft, duckdb, polars, pyiceberg, spark); deletes become deletion vectors "
        "only if all of them read vectors; with none named, only if the table has a vector already, or "
        "equality_deletes.route is convert; with duckdb, route auto rewrites, because deletes slow its queries down; "
        "a rewrite that brings ORC, Avro or lz4 that one does not read is refused",
    )
    blackout_hours: tuple[str, ...] = key((), "times of day in UTC without maintenance, as HH:MM-HH:MM")
    max_run_seconds: int | None = key(
        3600,
        "no new batch starts after this time in one run; an orphan scan stops after it and continues later",
        minimum=1,
    )
    table_timeout_seconds: int | None = key(
        86_400,
        "time after which a run gives up a table: it stops the engine, counts a failure, and goes on with the next "
        "table; a call that nothing interrupts ends the process a minute later",
        minimum=1,
    )
    ledger_keep_days: int | None = key(
        90, "days that the ledger keeps finished work and records of the table; null: no limit", minimum=1
    )
    health: HealthPolicy = field(default_factory=HealthPolicy)
    rewrite_data_files: RewriteDataFilesPolicy = field(default_factory=RewriteDataFilesPolicy)
    equality_deletes: EqualityDeletesPolicy = field(default_factory=EqualityDeletesPolicy)
    rewrite_position_delete_files: RewritePositionDeleteFilesPolicy = field(
        default_factory=RewritePositionDeleteFilesPolicy
    )
    layout: LayoutPolicy = field(default_factory=LayoutPolicy)
    rewrite_manifests: RewriteManifestsPolicy = field(default_factory=RewriteManifestsPolicy)
    expire_snapshots: ExpireSnapshotsPolicy = field(default_factory=ExpireSnapshotsPolicy)
    remove_orphan_files: RemoveOrphanFilesPolicy = field(default_factory=RemoveOrphanFilesPolicy)
    windows: WindowsPolicy = field(default_factory=WindowsPolicy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    foreign_maintainers: ForeignMaintainersPolicy = field(default_factory=ForeignMaintainersPolicy)
    write_audit_publish: WriteAuditPublishPolicy = field(default_factory=WriteAuditPublishPolicy)
    alerts: AlertsPolicy = field(default_factory=AlertsPolicy)
    attest: AttestPolicy = field(default_factory=AttestPolicy)


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """One documented key of the policy. `configured_only`: no table property may set it. A writer to the
    table must not decide which other locations belong to it. `unset`: what null stands for, "" if it turns the key
    off."""

    name: str
    section: str | None
    kind: str
    default: object
    doc: str
    minimum: float | None
    maximum: float | None
    configured_only: bool = False
    unset: str = ""

    @property
    def path(self) -> str:
        """`section.name`, as written in YAML and after `maintenance.`."""
        return f"{self.section}.{self.name}" if self.section else self.name


MOST_SET = (
    "mode",
    "paused",
    "readers",
    "blackout_hours",
    "rewrite_data_files.target_file_size_bytes",
    "rewrite_data_files.min_input_files",
    "rewrite_data_files.delete_ratio_act",
    "windows.cold_after_seconds",
    "expire_snapshots.max_snapshot_age_seconds",
    "remove_orphan_files.older_than_seconds",
)
"""The keys that people set. Lists of keys begin with them."""


def policy_keys() -> tuple[PolicyKey, ...]:
    """Returns every key of the policy: those that people set, then the others by section."""
    keys: list[PolicyKey] = []
    for top in fields(Policy):
        default = getattr(Policy(), top.name)
        nested = fields(default) if is_dataclass(default) else (top,)
        for f in nested:
            keys.append(
                PolicyKey(
                    name=f.name,
                    section=top.name if is_dataclass(default) else None,
                    kind=str(f.type),
                    default=f.default,
                    doc=str(f.metadata["doc"]),
                    minimum=f.metadata.get("minimum"),
                    maximum=f.metadata.get("maximum"),
                    configured_only=bool(f.metadata.get("configured_only")),
                    unset=str(f.metadata.get("unset", "")),
                )
            )
    return tuple(sorted(keys, key=lambda k: MOST_SET.index(k.path) if k.path in MOST_SET else len(MOST_SET)))
