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
        "ledger/histories.py",
        "",
        "outcome.c.recorded_ms > statement_now_ms() - _HOUR_MS, _ANY_OPERATION, among(outcome.c.table_uuid)",
        "outcome.c.recorded_ms >= statement_now_ms() - _HOUR_MS, _ANY_OPERATION, among(outcome.c.table_uuid)",
        "An outcome counts for one millisecond more than an hour. The database reads its own clock.",
    ),
    Equivalent(
        "core/commits/manifest_rules.py",
        "",
        "_DIGEST_BYTES = 32",
        "_DIGEST_BYTES = 33",
        "Digests are only compared for equality, all of the same length.",
    ),
    Equivalent(
        "core/commits/manifest_diff.py",
        "_lost",
        "[m for p, m in before.items() if p not in pinned_by_path and not m.is_deletes] if missing else []",
        "[m for p, m in before.items() if p not in pinned_by_path or not m.is_deletes] if missing else []",
        "More manifests are read. A file is live in one manifest only, and a delete file has another path.",
    ),
    Equivalent(
        "core/commits/manifest_diff.py",
        "_Opened.contents",
        "if ours and status is EntryStatus.ADDED:",
        "if ours or status is EntryStatus.ADDED:",
        "An entry that another snapshot added counts as added or as kept. The other count does not add up, so both sides are compared entry by entry.",
    ),
    Equivalent(
        "core/planning/file_groups.py",
        "sorted_groups",
        "goal=policy.layout.overlap_depth_warn or policy.layout.overlap_depth_act or 1.0,",
        "goal=policy.layout.overlap_depth_warn or policy.layout.overlap_depth_act or 2.0,",
        "A partition is due for its layout by one of the two keys, and neither is below 1.",
    ),
    Equivalent(
        "core/planning/file_groups.py",
        "",
        "before_conversion: bool = False",
        "before_conversion: bool = True",
        "The loop, which makes all plans of the product, gives the value.",
    ),
    Equivalent(
        "core/planning/rewrite_data_files.py",
        "plan_groups",
        "largest = max((c.file.size_bytes for some in by_spec.values() for c in some), default=0)",
        "largest = max((c.file.size_bytes for some in by_spec.values() for c in some), default=1)",
        "Without files there is nothing to pack.",
    ),
    Equivalent(
        "core/commits/change.py",
        "",
        "size_bytes: int = 0",
        "size_bytes: int = 1",
        "One caller leaves the size out: its entries are matched with deletes, by path and scope.",
    ),
    Equivalent(
        "ledger/database.py",
        "_use_wal",
        "if _is_read_only(why) or time.monotonic() >= deadline:",
        "if _is_read_only(why) or time.monotonic() > deadline:",
        "The two differ only where a reading of the clock is the deadline to the nanosecond.",
    ),
    Equivalent(
        "ledger/database.py",
        "",
        '"keepalives_interval": 5,',
        '"keepalives_interval": 6,',
        "PostgreSQL asks a silent connection every 6 seconds and not every 5.",
    ),
    Equivalent(
        "ledger/leases.py",
        "",
        "_UNEXPIRED = lease.c.expires_ms > db_now_ms()",
        "_UNEXPIRED = lease.c.expires_ms >= db_now_ms()",
        "A lease ends one millisecond later. The database reads its own clock.",
    ),
    Equivalent(
        "ledger/outcomes.py",
        "",
        ".limit(1)",
        ".limit(2)",
        "`first` returns the first row only.",
    ),
    Equivalent(
        "catalog/sql_listing.py",
        "",
        "_BUSY_TIMEOUT_SECONDS = 30",
        "_BUSY_TIMEOUT_SECONDS = 31",
        "SQLite waits for 31 seconds and not 30.",
    ),
    Equivalent(
        "catalog/manifests/projection.py",
        "",
        "VERSION = 1",
        "VERSION = 2",
        "Projections are only compared with those that the same version stored.",
    ),
    Equivalent(
        "core/commits/attestation.py",
        "_listed_rows",
        "(m.added_files or 0) + (m.existing_files or 0),",
        "(m.added_files or 0) + (m.existing_files or 1),",
        "Where the counts differ, the entries are compared one by one, with the same verdict.",
    ),
    Equivalent(
        "engines/spark/session/session_checks.py",
        "",
        '_UNITS_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}',
        '_UNITS_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1025**3, "p": 1024**4}',
        "A size in t is only compared with 480 MiB: it is above that, or 0, with both.",
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
    Equivalent(
        "catalog/manifests/measure.py",
        "References.none",
        "return cls(np.full(length, -1, np.int64), np.zeros(length, bool))",
        "return cls(np.full(length, -2, np.int64), np.zeros(length, bool))",
        "The numbers are only compared with 0: below it, an entry names no file.",
    ),
    Equivalent(
        "catalog/location_owners.py",
        "_metadata_files",
        "files.sort(key=lambda file: (file.modified_ms or 0, file.path), reverse=True)",
        "files.sort(key=lambda file: (file.modified_ms or 1, file.path), reverse=True)",
        "Only files of the first two milliseconds of 1970 are put in another order.",
    ),
    Equivalent(
        "catalog/manifests/avro_records.py",
        "",
        "_FIRST_SEEN, _SEEN_FACTOR = 16, 2",
        "_FIRST_SEEN, _SEEN_FACTOR = 16, 3",
        "The expression of a shape is compiled at other records. A record that it does not accept is read by value.",
    ),
    Equivalent(
        "engines/spark/deletes/merge_position_deletes.py",
        "_deleted_positions",
        'rows.observe(observation, F.count(F.lit(1)).alias("rows"))',
        'rows.observe(observation, F.count(F.lit(2)).alias("rows"))',
        "The count of a constant is the number of rows, whatever the constant is.",
    ),
    Equivalent(
        "engines/spark/deletes/membership.py",
        "_may_contain",
        "if not hashed.take(1):",
        "if not hashed.take(2):",
        "The rows are taken only to see whether there are any.",
    ),
    Equivalent(
        "engines/spark/session/session_checks.py",
        "",
        '_UNITS_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}',
        '_UNITS_KIB = {"k": 1, "m": 1025, "g": 1024**2, "t": 1024**3, "p": 1024**4}',
        "The sizes are only compared with 480 MiB: 479 such units stay below, 480 do not.",
    ),
    Equivalent(
        "engines/spark/rewrite/columnar/worker_process.py",
        "main",
        "_, descriptors, _, _ = socket.recv_fds(control, 1, 2)",
        "_, descriptors, _, _ = socket.recv_fds(control, 2, 2)",
        "Each message has one byte and descriptors, and the kernel ends a read after a message that has descriptors.",
    ),
    Equivalent(
        "removal/removal_progress.py",
        "",
        "released: bool = False",
        "released: bool = True",
        "Only changes of restored files take the default, and they delete no file.",
    ),
    Equivalent(
        "removal/target.py",
        "",
        "_AT_ONCE = 16",
        "_AT_ONCE = 17",
        "The result is the same for any number of manifests that are read at once.",
    ),
    Equivalent(
        "core/outcomes/record.py",
        "_moved_past",
        "bases = {s.snapshot_id for s in chain[1:]} | {s.parent_id for s in chain[-1:]}",
        "bases = {s.snapshot_id for s in chain[1:]} | {s.parent_id for s in chain[-2:]}",
        "The parent of the last snapshot but one is the last one, which is in the set.",
    ),
    Equivalent(
        "core/outcomes/outcome.py",
        "",
        "commit_tries: int = 0",
        "commit_tries: int = 1",
        "The two places of the product that make an outcome give the number, and the ledger stores it.",
    ),
    Equivalent(
        "catalog/location_owners.py",
        "_metadata_files",
        "files = list(islice(store.list(folder), _MOST_LISTED + 1))",
        "files = list(islice(store.list(folder), _MOST_LISTED + 2))",
        "Whether the list is longer than the limit is the same with one file beyond it or two.",
    ),
    Equivalent(
        "catalog/manifests/avro_records.py",
        "",
        "_SHORT = 64",
        "_SHORT = 65",
        "The expression accepts other lengths. A record that it does not accept is read by value.",
    ),
    Equivalent(
        "ledger/batches.py",
        "_cursor",
        ".limit(1)",
        ".limit(2)",
        "`scalar` returns the value of the first row only.",
    ),
    Equivalent(
        "removal/released_lists.py",
        "stored_marks",
        "stored, key=lambda s: (s.mark is None, s.mark.header.marked_ms if s.mark else 0, s.location)",
        "stored, key=lambda s: (s.mark is None, s.mark.header.marked_ms if s.mark else 1, s.location)",
        "Lists without a mark are compared by it with one another only, and all of them have the same number.",
    ),
    Equivalent(
        "catalog/s3_store.py",
        "_Pages.entries",
        "repeated = 0",
        "repeated = 1",
        "The first page is new, and sets it again.",
    ),
)


def reason_of(site: Site) -> str:
    """Why a mutant is equivalent; empty where it is not in the list."""
    before, after = site.lines()
    for each in EQUIVALENT:
        if (each.file, each.function, each.before, each.after) == (site.file, site.function, before, after):
            return each.reason
    return ""
