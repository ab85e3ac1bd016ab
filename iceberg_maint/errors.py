"""Every error that a user may see: one root class, and per error one code, one line, one exit code.

The codes are a public contract (`docs/reference/errors.md`). `CODES` is the closed list.
"""

from __future__ import annotations

import errno
import logging
import re

CODES: dict[str, str] = {
    "ICM-100": "configuration is missing, malformed or has an unknown key",
    "ICM-101": "table cannot be loaded or its metadata cannot be read",
    "ICM-103": "unsupported Java, Spark, Scala or Iceberg version, or a jar that fails its checksum",
    "ICM-104": "catalog cannot be reached",
    "ICM-105": "unsafe Spark session setting",
    "ICM-106": "Hadoop catalog: commits are not atomic across processes",
    "ICM-107": "Hive catalog without locks",
    "ICM-108": "format version that is not supported",
    "ICM-109": "another run holds the table's lease, or another maintainer rewrites its files",
    "ICM-110": "the table's owner forbids deleting its files (gc.enabled=false)",
    "ICM-111": "location shared with another table, files of another table below it, or a second owner of "
    "the table",
    "ICM-112": "the table writes outside its location and no exclusive prefix is declared for that, or a link leads there",
    "ICM-113": "locations that cannot be compared: schemes or authorities without a mapping",
    "ICM-114": "age or retention of orphan files below the floor of 24 hours",
    "ICM-115": "clocks are more than five minutes apart, or one moved backwards",
    "ICM-116": "SQLite on a network file system, or with more than one concurrent run",
    "ICM-117": "Dagster instance settings under which a crashed run would block a table",
    "ICM-118": "secret written in the configuration file",
    "ICM-119": "equality delete that cannot be applied safely",
    "ICM-120": "data file that is referenced twice",
    "ICM-121": "commit that is neither confirmed nor refuted",
    "ICM-122": "so many orphan files that it may be a mistake, or storage and metadata disagree",
    "ICM-124": "equality deletes or a rewrite that need more memory or scratch space than is declared",
    "ICM-125": "missing permission on the storage",
    "ICM-126": "unknown table or partition",
    "ICM-127": "a service would listen to other machines and must listen to this one only",
    "ICM-128": "ledger cannot be reached, or its schema is newer than this version",
    "ICM-129": "the table changed, or was dropped and created again, after the work was planned; it is planned again",
    "ICM-130": "an expiry of snapshots removed a ref that was set at the same time",
    "ICM-131": "the source column of a partition spec that still has files was dropped",
    "ICM-132": "a Spark cluster that cannot be reached or runs no executor",
    "ICM-133": "credentials, a connection or a class that Spark or the storage needs are missing",
    "ICM-134": "a column has a type whose values no operation on data can read",
    "ICM-135": "neither the columnar strategy nor Spark can rewrite the files of a batch",
    "ICM-137": "a REST catalog does not take the requirements of our commits",
    "ICM-140": "a receiver of telemetry did not take samples, or its queue is full; maintenance is not affected",
    "ICM-142": "a receiver is configured whose client library is not installed",
    "ICM-143": "an entry of the audit log was removed, changed, moved or replaced",
    "ICM-144": "the audit log cannot be written",
    "ICM-151": "a receiver of alerts did not take the messages",
    "ICM-153": "the listing of a store contradicts itself or the store's other answers",
    "ICM-154": "the catalog signs requests to the store and gives no credentials (remote signing)",
    "ICM-155": "a table names a location outside the approved locations of its catalog",
    "ICM-156": "a table name with an empty part or a dot within a part",
    "ICM-160": "the catalog refuses the credentials",
    "ICM-161": "the catalog does not serve requests now",
    "ICM-162": "a table that is maintained under another name",
    "ICM-163": "a Hive Metastore that lacks a call of the clients",
    "ICM-164": "the Spark driver would be another process: Spark Connect, or deploy mode cluster",
    "ICM-169": "the catalog restricts what this program may read of a table",
    "ICM-170": "the catalog denies commits",
    "ICM-171": "the table used up its time",
    "ICM-172": "an object is archived",
    "ICM-173": "a path names two objects",
    "ICM-175": "Spark does not start, or a process that does its work was ended",
    "ICM-176": "a file system or a store takes no writes: full, over its quota, read-only or broken; too many open files",
    "ICM-177": "a measurement from manifests needs more memory than declared",
    "ICM-178": "Spark cannot measure the table",
    "ICM-179": "a catalog or a table did not answer in time",
    "ICM-180": "a property of the table that no Parquet writer takes",
    "ICM-181": "a fault of this program",
    "ICM-182": "a rewrite would write what a reader of the policy does not read",
    "ICM-183": "a partition whose path is longer than the store takes",
    "ICM-184": "a Python environment cannot maintain tables, or its reports do not arrive",
    "ICM-185": "a commit that claims to change no row lost rows or brought rows back",
    "ICM-186": "no engine of the policy can do the work of a batch",
    "ICM-187": "due maintenance waits for loads or readers of its table, or for runs in the queue, that do not end",
}

LOST_FILE_FIX = (
    "restore the file from a version or a backup of the store, or roll the table back to a snapshot that does not need "
    "it. Do not remove it from the table: with a data file that deletes rows, with a delete file it brings rows back."
)
"""The fix of a data or delete file that is missing or damaged."""
WRONG_COUNT_FIX = (
    "read the number of rows from the file's footer. If it is the number that was read, and the file was not replaced, its "
    "manifest entry is wrong: let Spark write its rows again, by an `UPDATE` that changes no value, with `write.update.mode` "
    "`copy-on-write`; of a delete file by `CALL system.rewrite_position_delete_files` with `rewrite-all`. Otherwise restore the file from a version or a backup of the store."
)
"""The fix of a file with another number of rows than its manifest entry states."""
DELETE_AGAIN = (
    "remove the delete file from the table, and have the engine that wrote it delete its rows again."
)
"""The fix of a delete file that readers apply in two ways."""
VECTOR_AGAIN = (
    "remove this vector from the table, but not the others of its file, and have the engine that wrote it delete its rows "
    "again."
)
"""The fix of a deletion vector that Iceberg does not read. One Puffin file has the vectors of many data files."""


def wrong_count(path: str, rows: int, stated: int) -> str:
    """The sentence and the fix of a file with another number of rows than its manifest entry states."""
    return f"{path} has {rows} rows; its manifest states {stated}. Fix: {WRONG_COUNT_FIX}"


def wrong_vector(place: str, positions: int, stated: int) -> str:
    """The sentence and the fix of a deletion vector with another number of positions than its manifest entry states. Its
    checksum is right, so no other copy of it is better, and Iceberg reads no row of its data file."""
    return f"{place} has {positions} positions; its manifest states {stated}. Fix: {VECTOR_AGAIN}"


def names_another_file(path: str, found: str, stated: str) -> str:
    """The sentence and the fix of a position delete file that deletes rows of the data file `found`, which its metadata
    excludes. Readers that trust metadata do not apply it there, and others do."""
    return f"the delete file {path} deletes rows of {found}; its manifest states that it names {stated} only. Fix: {DELETE_AGAIN}"


_ROOM = "free space there, or set ICEBERG_MAINT_HOME to a folder of another file system."
_LIMIT = "raise the limit of open files of this process (ulimit -n)."
_FIXES: dict[int | None, str] = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: f"raise the quota, {_ROOM}",
    errno.EROFS: "make the file system writable, or set ICEBERG_MAINT_HOME to a folder of another one.",
    errno.EMFILE: _LIMIT,
    errno.ENFILE: _LIMIT,
}
"""What to do about a home that cannot be written for its file system or the machine, by error number."""
_DOUBLED_STOP = re.compile(r"(?<=[^\s./'\"`])\.(\.|\.{3})(?= |$)")
"""A full stop after a value that ends with one, or with three. Dots of paths, in quotes and `...` alone are none."""


def printable(text: str) -> str:
    """Returns the text with escapes in place of characters that steer a terminal or change the text direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class _PrintableRecord(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802 - overrides the name of the library
        message = super().getMessage()
        return printable(message) if self.name.startswith(("iceberg_maint", "dagster")) else message


def log_printable_messages() -> None:
    """Lets this process log messages of this program and of Dagster's runs as text: names of tables are part of them."""
    logging.setLogRecordFactory(_PrintableRecord)


EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNKNOWN = 4


class IcebergMaintError(Exception):
    """Root of all errors that the program raises on purpose.

    `code` is a key of `CODES`. `message` names the setting or table, the value and the rule. `fix` says
    what to do. `str()` is the line that a user sees. If the message quotes another error, the fix of that one counts only
    without a `fix`.
    """

    exit_code = EXIT_FAILED

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        if code not in CODES:
            raise ValueError(f"{code} is not a documented code.")
        self.code = code
        self.message, *quoted_fixes = _DOUBLED_STOP.sub(".", message).split(" Fix: ")
        self.fix, *_ = _DOUBLED_STOP.sub(".", fix).split(" Fix: ") if fix else (*quoted_fixes, "")
        super().__init__(code, self.message, self.fix)

    def __str__(self) -> str:
        stop = "" if self.message.endswith((".", "?", "!")) else "."
        fix = f"{stop} Fix: {self.fix}" if self.fix else ""
        # A quoted value may contain line ends. Escaped, they cannot forge a line of a log.
        return f"{self.code} {self.message}{fix}".replace("\n", "\\n")


def with_code(error: Exception) -> IcebergMaintError:
    """Returns the error of one of many tables: itself if it has a code, else ICM-181."""
    if isinstance(error, IcebergMaintError):
        return error
    text = " ".join(str(error).split())
    return IcebergMaintError(
        "ICM-181",
        f"unexpected {type(error).__name__}: {text}.",
        "report the output of `iceberg-maint why` for this table.",
    )


class ConfigurationError(IcebergMaintError):
    """Wrong configuration or usage. Nothing was started, nothing was changed."""

    exit_code = EXIT_USAGE


def unwritable_home(folder: str, why: OSError) -> IcebergMaintError:
    """The error of a home folder that cannot be made or written: of its file system, or of the folder."""
    what = f"{folder} cannot be written: {why.strerror}."
    if why.errno in _FIXES:
        return IcebergMaintError("ICM-176", what, _FIXES[why.errno])
    return ConfigurationError(
        "ICM-100",
        what,
        "set ICEBERG_MAINT_HOME to a folder that this user can write. By default it is beside the configuration.",
    )


class UnknownTableError(ConfigurationError):
    """A table or partition that the catalog does not list."""


class RefusedError(IcebergMaintError):
    """Work refused because a precondition of safety does not hold. Nothing was changed."""

    exit_code = EXIT_REFUSED


class UnreadableTableError(RefusedError):
    """Metadata that cannot be decoded or that contradicts itself. No part of the table is measured."""


class GovernedTableError(RefusedError):
    """A table with read restrictions (ICM-169): the catalog's answer to the load of the table has a row filter or
    column masks for this principal. No file of the table is read, and no value of it is shown. `metadata` is what the
    catalog answered: location and content of the metadata file."""

    def __init__(self, message: str, metadata: tuple[str, bytes] | None = None) -> None:
        self.metadata = metadata
        super().__init__(
            "ICM-169",
            message,
            "let the owner of the catalog permit this principal to read every row and column of the table, or "
            "maintain the table with another principal.",
        )

    def __reduce__(self) -> tuple[type[GovernedTableError], tuple[str, tuple[str, bytes] | None]]:
        return (GovernedTableError, (self.message, self.metadata))


class ArchivedFileError(RefusedError):
    """An object in a storage class that answers no reads (ICM-172): S3 Glacier, or an archive tier. It was not moved."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(
            "ICM-172",
            f"{location} is archived: its storage class permits neither reads nor copies.",
            "restore the object in the store, or delete it there; and end the lifecycle rule that archives files of "
            "the table.",
        )

    def __reduce__(self) -> tuple[type[ArchivedFileError], tuple[str]]:
        return (ArchivedFileError, (self.location,))


class StaleBatchError(RefusedError):
    """The table changed after a batch was planned (ICM-129). Nothing was changed; the work is planned again."""

    def __init__(self, message: str) -> None:
        super().__init__("ICM-129", message, "none; the work is planned again.")

    def __reduce__(self) -> tuple[type[StaleBatchError], tuple[str]]:
        return (StaleBatchError, (self.message,))


class FenceLostError(IcebergMaintError):
    """Another run holds the lease now. This worker must stop and must not change the table."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str) -> None:
        super().__init__(
            "ICM-109", message, "none; the run that took the lease continues, or the next run does."
        )

    def __reduce__(self) -> tuple[type[FenceLostError], tuple[str]]:
        return (FenceLostError, (self.message,))
