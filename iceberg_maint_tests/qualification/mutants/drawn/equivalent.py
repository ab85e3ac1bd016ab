"""Drawn mutants that no test can kill, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint_tests.qualification.mutants.drawn.sites import Site


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The line before and after the change, in a function of a file, and why both do the same."""

    file: str
    function: str
    before: str
    after: str
    reason: str


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "core/outcomes/record.py",
        "_committed",
        'removed = int(snapshot.summary.get("removed-delete-files", "0")) if snapshot is not None else 0',
        'removed = int(snapshot.summary.get("removed-delete-files", "0")) if snapshot is not None else 1',
        "Without a snapshot the outcome is IMPROVED whatever was removed: the number is not read.",
    ),
    Equivalent(
        "core/model/columns.py",
        "base_type",
        'return re.split(r"[(\\[]", type_name, maxsplit=1)[0].strip()',
        'return re.split(r"[(\\[]", type_name, maxsplit=2)[0].strip()',
        "Only the text before the first bracket is used.",
    ),
    Equivalent(
        "catalog/local_store.py",
        "LocalStore.list",
        "status = entry.stat(follow_symlinks=False)",
        "status = entry.stat(follow_symlinks=True)",
        "Only regular files come here: they are no links.",
    ),
    Equivalent(
        "ledger/records.py",
        "",
        'attempt.c.run_id != bindparam("owner"), attempt.c.fence < bindparam("fence")',
        'attempt.c.run_id != bindparam("owner"), attempt.c.fence <= bindparam("fence")',
        "Each lease gets a fence of its own: attempts with the lease's fence have its owner.",
    ),
    Equivalent(
        "catalog/manifests/live_columns.py",
        "_unreferenced",
        "never = 1 << 63",
        "never = 2 << 63",
        "The number is above all sequence numbers, which are below 2^63.",
    ),
    Equivalent(
        "removal/table_ownership.py",
        "",
        "_GZIP = 31",
        "_GZIP = 32",
        "zlib takes 32 as: gzip or zlib, by the header. The files are gzip.",
    ),
    Equivalent(
        "removal/path_index.py",
        "_hashed",
        "return blake2b(key, digest_size=16).digest()",
        "return blake2b(key, digest_size=17).digest()",
        "Digests are only compared for equality, all of the same length.",
    ),
    Equivalent(
        "ledger/database.py",
        "_sqlite",
        'settings: dict[str, Any] = {"connect_args": {"timeout": _BUSY_TIMEOUT_MS / 1000}}',
        'settings: dict[str, Any] = {"connect_args": {"timeout": _BUSY_TIMEOUT_MS / 1001}}',
        "SQLite waits for 29.97 seconds and not 30.",
    ),
    Equivalent(
        "removal/table_ownership.py",
        "",
        "_AT_ONCE = 16",
        "_AT_ONCE = 17",
        "The number of files that are read at the same time changes no result.",
    ),
    Equivalent(
        "core/decisions/table_decision.py",
        "_rank",
        "return _SEVERITY_ORDER.index(verdict), _QUIET.index(reason) + 1 if reason in _QUIET else 0",
        "return _SEVERITY_ORDER.index(verdict), _QUIET.index(reason) + 2 if reason in _QUIET else 0",
        "Ranks are only compared. The order of the reasons stays: the others before the three.",
    ),
    Equivalent(
        "core/health/layout.py",
        "",
        "_FAR = 1e300",
        "_FAR = 2e+300",
        "Infinite bounds lie far beyond all finite ones with both. Differences of two such numbers are finite.",
    ),
    Equivalent(
        "ledger/attempts.py",
        "",
        ".limit(1)",
        ".limit(2)",
        "`scalar` returns the value of the first row only.",
    ),
    Equivalent(
        "engines/spark/rewrite/sort.py",
        "_numbers_by_partition",
        "numbers = spark.range(start, start + 64 * count, 1, 1)",
        "numbers = spark.range(start, start + 64 * count, 1, 2)",
        "Spark computes the range in two tasks. The rows are collected in the same order.",
    ),
    Equivalent(
        "engines/spark/session/java.py",
        "quiet_home",
        "name = hashlib.sha256(os.fsencode(java.path.absolute())).hexdigest()[:12]",
        "name = hashlib.sha256(os.fsencode(java.path.absolute())).hexdigest()[:13]",
        "The name of a folder is one digit longer. It still differs for each Java.",
    ),
    Equivalent(
        "engines/spark/engine.py",
        "SparkEngine._write",
        "bridge, java_table, batch, column_stats=footers and not keeps_data_files(batch.work)",
        "bridge, java_table, batch, column_stats=footers or not keeps_data_files(batch.work)",
        "The plan loads column statistics that the proof does not read. Files and proof are the same.",
    ),
    Equivalent(
        "engines/spark/scan/scan.py",
        "",
        "column_stats: bool = False,",
        "column_stats: bool = True,",
        "The callers that use the default do not read the column statistics. The tasks are the same.",
    ),
    Equivalent(
        "engines/spark/deletes/membership.py",
        "_Membership._remove_shuffles",
        "cleaner.doCleanupShuffle(shuffle, True)",
        "cleaner.doCleanupShuffle(shuffle, False)",
        "Spark still removes the shuffle files, and does not wait for the executors' answer. No row depends on it.",
    ),
    Equivalent(
        "engines/spark/health/entries.py",
        "_depths",
        'end = F.struct(high.alias("at"), F.lit(-1).alias("step"), F.lit(0).cast("long").alias("empty"))',
        'end = F.struct(high.alias("at"), F.lit(-1).alias("step"), F.lit(1).cast("long").alias("empty"))',
        "Only the starts of ranges are read further: the column of an end has no reader.",
    ),
)


def reason_of(site: Site) -> str:
    """Why a mutant is equivalent; empty where it is not in the list."""
    before, after = site.lines()
    for each in EQUIVALENT:
        if (each.file, each.function, each.before, each.after) == (site.file, site.function, before, after):
            return each.reason
    return ""
