"""Failures: of the environment, of damaged files, and of paths that a store does not take."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from iceberg_maint.core.model.ids import PartitionKey

_DAMAGE_CLASSES = frozenset(
    {
        "NotFoundException",
        "NoSuchKeyException",
        "ParquetDecodingException",
        "InvalidAvroMagicException",
        "FileFormatException",
    }
)
"""Names of exceptions, without their packages: of Iceberg, the AWS SDK, Parquet, Avro and ORC. Java's own are not among them:
scratch files and workers raise them too."""
_DAMAGE_TEXTS = (
    "is not a Parquet file",
    "Failed to open Parquet file",
    "Failed to read footer",
    "Malformed ORC file",
    "Not an Avro data file",
    "Invalid magic number",
    "Invalid puffin",
    "checksum verification failed",
    "Reached the end of stream with",
    "Incorrect length provided for file",
    # A Parquet footer with other counts than the pages.
    "Number of values read, ",
    "values in column chunk at ",
)
_PARQUET_THRIFT = ".parquet.shaded.org.apache.thrift."
"""In names of exceptions of Parquet's footers and page headers. Thrift's own are those of a Hive Metastore."""


def is_damaged_file(causes: Iterable[tuple[str, str]]) -> bool:
    """Returns whether one of these (class name, message) is the error of a missing or damaged file."""
    return any(
        name.rpartition(".")[2] in _DAMAGE_CLASSES
        or _PARQUET_THRIFT in name
        or any(t in text for t in _DAMAGE_TEXTS)
        for name, text in causes
    )


ENVIRONMENT_CODES = frozenset(
    {
        "ICM-103",
        "ICM-104",
        "ICM-125",
        "ICM-132",
        "ICM-133",
        "ICM-153",
        "ICM-160",
        "ICM-161",
        "ICM-175",
        "ICM-176",
    }
)
"""Codes of errors of the environment."""

_CLASSES = frozenset(
    {
        # Names and connections, in Java and in Python.
        "UnknownHostException",
        "ConnectException",
        "NoRouteToHostException",
        "HttpHostConnectException",
        "ConnectTimeoutException",
        "HttpConnectTimeoutException",
        "TTransportException",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectTimeout",
        "NewConnectionError",
        "EndpointConnectionError",
        "gaierror",
        # Certificates.
        "SSLHandshakeException",
        "SSLError",
        "SSLCertVerificationError",
        # Credentials and permissions.
        "AccessDeniedException",
        "AccessControlException",
        "NotAuthorizedException",
        "ForbiddenException",
        "ClientAuthenticationException",
        "UnauthorizedError",
        "ForbiddenError",
        "AuthorizationExpiredError",
        "OAuthError",
        "NoCredentialsError",
        "PermissionError",
        # Services that are unavailable or throttle.
        "ServiceUnavailableException",
        "ServiceUnavailableError",
        "TooManyRequestsError",
        # Missing packages and jars.
        "ClassNotFoundException",
        "NoClassDefFoundError",
        "UnsupportedFileSystemException",
        "ModuleNotFoundError",
        "NotInstalledError",
        # HDFS.
        "QuotaExceededException",
        "NSQuotaExceededException",
        "DSQuotaExceededException",
    }
)
"""Names of exceptions, without their packages."""

JVM_DIED = "the JVM has died or does not answer"
WORKER_KILLED = "a worker process was killed in a task"
_ENDED_PROCESSES = {
    JVM_DIED: "read what Java wrote on stderr, and the log of the system, which ends processes when memory runs out",
    WORKER_KILLED: "give this machine more memory, lower the tasks at a time (the number in spark.master), or bound the memory "
    "of each by spark.executor.pyspark.memory under spark.conf",
}
"""Processes of this machine that something else has ended, with what to do."""

_TEXTS = (
    *_ENDED_PROCESSES,
    # The AWS SDK for Java has one class for all failures of the client, and one per service for all answers.
    "Unable to load credentials",
    "Unable to load region",
    "Unable to execute HTTP request",
    "Status Code: 401",
    "Status Code: 403",
    "Status Code: 500",
    "Status Code: 502",
    "Status Code: 503",
    "Status Code: 504",
    "security token included in the request is",
    # S3's answer to vended credentials that are too old has status 400.
    "The provided token has expired",
    # Iceberg names a class that is missing in the text only (DynConstructors).
    "java.lang.ClassNotFoundException",
    "java.lang.NoClassDefFoundError",
    # A signature for another region, in answers with a text.
    "The authorization header is malformed",
    "must be addressed using the specified endpoint",
    # The answers of S3's Java client without a text.
    "Bad Request (Service: S3, Status Code: 400",
    "(Service: S3, Status Code: 301",
    # S3 answers a HEAD request without a text. It refuses a token that has expired by status 400, a signature for
    # another region by 400 or 301.
    "(HTTP status 400) during HeadObject",
    "(HTTP status 301) during HeadObject",
    # The client of S3FileIO: an answer ends early, or does not come. S3FileIO repeats some of these reads.
    "Premature end of Content-Length delimited message body",
    "SocketTimeoutException: Read timed out",
    "SocketException: Connection reset",
    # An unavailable store, in an answer without a text.
    "(HTTP status 500) during",
    "(HTTP status 502) during",
    "(HTTP status 503) during",
    "(HTTP status 504) during",
    # Java's error of a file that may not be read has the class of a missing one.
    "(Permission denied)",
    # SQLite, of the file of a catalog that another process locks.
    "database is locked",
    # Arrow returns the answer of a store as text.
    "AWS Error NETWORK_CONNECTION",
    "AWS Error ACCESS_DENIED",
    "AWS Error INVALID_ACCESS_KEY_ID",
    "AWS Error SIGNATURE_DOES_NOT_MATCH",
    "AWS Error INTERNAL_FAILURE",
    "AWS Error SERVICE_UNAVAILABLE",
    "AWS Error SLOW_DOWN",
    "AWS Error THROTTLING",
    "AWS Error REQUEST_EXPIRED",
    "AWS Error REQUEST_TIME_TOO_SKEWED",
    "AWS Error INVALID_CLIENT_TOKEN_ID",
)

_FULL = "free space there, or raise the quota"
_FILE_SYSTEM = {
    "No space left on device": _FULL,
    "Disk quota exceeded": _FULL,
    "Quota exceeded": _FULL,
    "QuotaExceeded": _FULL,
    "Status Code: 507": _FULL,
    "HTTP status 507": _FULL,
    "Insufficient Storage": _FULL,
    "database or disk is full": _FULL,
    "Read-only file system": "make the file system writable",
    "Too many open files": "raise the limit of open files of this process (ulimit -n)",
    "File too large": "raise the limit of the size of a file (ulimit -f), or use a file system that takes larger files",
    "Input/output error": "check the disk of the file system, or name another folder for scratch files (SPARK_LOCAL_DIRS)",
}
"""Texts of the C library (ENOSPC, EDQUOT, EROFS, EMFILE, ENFILE, EFBIG, EIO) of SQLite, and of stores, with what to do. Java, Arrow and
Python repeat the texts of the C library."""


def is_environment(causes: Iterable[tuple[str, str]]) -> bool:
    """Whether one of these (class name, message) is a failure of the environment."""
    return any(
        (name.rpartition(".")[2] in _CLASSES and _PARQUET_THRIFT not in name)
        or any(t in text for t in _TEXTS)
        or file_system_fix(text) is not None
        for name, text in _with_workers(causes)
    )


_FAULTS = (MemoryError, ImportError, NameError, AssertionError, RuntimeError, SystemError)
_VALUES = (type(None), bool, int, float, str, bytes, tuple, list, dict)


def is_of_process(error: BaseException) -> bool:
    """Whether an error that was raised while a file was read is one of this process, whatever the file holds: memory, an
    import, a bug. A file causes errors of values and of input and output, own errors of codecs and file systems, and the
    lack of an attribute of one of its values. A package that is missing is the environment's."""
    if isinstance(error, AttributeError):
        return error.name is None or not isinstance(error.obj, _VALUES)
    # A library raises NotImplementedError for what a file asks of it.
    return isinstance(error, _FAULTS) and not (isinstance(error, NotImplementedError) or lacks_package(error))


def lacks_package(error: BaseException) -> bool:
    """Whether a package is not installed. A client that needs one raises ImportError without a name."""
    return isinstance(error, ImportError) and (isinstance(error, ModuleNotFoundError) or error.name is None)


def ended_process_fix(text: str) -> str | None:
    """The fix of a process that was ended, by this message. None for any other error."""
    return next((fix for sign, fix in _ENDED_PROCESSES.items() if sign in text), None)


def file_system_fix(text: str) -> str | None:
    """The fix of the file-system error in this message. None for any other error."""
    return next((fix for sign, fix in _FILE_SYSTEM.items() if sign in text), None)


def _with_workers(causes: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The causes, and the error of each Python worker. Java has only its traceback."""
    for name, text in causes:
        yield name, text
        if name.endswith(".PythonException") and (lines := text.strip().splitlines()):
            error, _, message = lines[-1].partition(": ")
            yield error, message


def python_causes(error: BaseException) -> tuple[tuple[str, str], ...]:
    """(class name, message) of a Python exception and its causes, outermost first."""
    chain: list[tuple[str, str]] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 32:
        chain.append((type(cause).__name__, str(cause)))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return tuple(chain)


_SIGNS = {
    # Hadoop's local file system has no errno for a folder.
    re.compile(
        r"File name too long|Mkdirs failed to create \S*[^/\s]{256}|maximum path component name limit"
    ): "a file system takes names of at most 255 bytes",
    re.compile(r"KeyTooLong|key is too long"): "S3 takes keys of at most 1,024 bytes",
}
"""Errors of the C library (ENAMETOOLONG), of Hadoop, HDFS and S3, with their limits."""
_LEAST_LIMIT_BYTES = 255
_SHOWN = 100


def may_be_too_long(partition: PartitionKey) -> bool:
    """Whether a store may refuse every path of this partition. Such a partition shares no batch with others."""
    return len(partition) > _LEAST_LIMIT_BYTES


def long_path(partitions: Collection[PartitionKey], causes: Iterable[tuple[str, str]]) -> str | None:
    """Returns which partition has a path that the store does not take, and its limit, from the (class name, message) of an
    error. None for any other error."""
    texts = [f"{name}: {text}" for name, text in causes]
    limit = next((rule for sign, rule in _SIGNS.items() if any(map(sign.search, texts))), None)
    if limit is None or not partitions:
        return None
    longest = max(partitions, key=len)
    shown = longest if len(longest) <= _SHOWN else f"{longest[:_SHOWN]}… ({len(longest):,} characters)"
    return f"the store does not take the path of a new file of partition {shown}: {limit}."
