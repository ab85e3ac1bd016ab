"""Which failures are those of the environment."""

from __future__ import annotations

import socket

import pytest

from iceberg_maint.core.outcomes.failures import file_system_fix, is_environment, python_causes

SDK = "software.amazon.awssdk."


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("java.net.UnknownHostException", "s3.example"),
        ("java.net.ConnectException", "Connection refused"),
        ("org.apache.hc.client5.http.HttpHostConnectException", "Connect to http://127.0.0.1:1 failed"),
        (SDK + "core.exception.SdkClientException", "Unable to load credentials from any of the providers"),
        (SDK + "services.s3.model.S3Exception", "Forbidden (Service: S3, Status Code: 403, Request ID: 1)"),
        (SDK + "services.s3.model.S3Exception", "Slow down (Service: S3, Status Code: 503, Request ID: 1)"),
        (
            SDK + "services.glue.model.GlueException",
            "The security token included in the request is invalid. (Service: Glue, Status Code: 400)",
        ),
        (
            SDK + "services.s3.model.S3Exception",
            "The provided token has expired. (Service: S3, Status Code: 400, Request ID: 1)",
        ),
        ("org.apache.iceberg.exceptions.NotAuthorizedException", "Not authorized"),
        ("java.lang.ClassNotFoundException", "org.apache.iceberg.aws.s3.S3FileIO"),
        (
            "java.lang.IllegalArgumentException",
            "Cannot initialize FileIO implementation x.Y: Missing x.Y [java.lang.ClassNotFoundException: x.Y]",
        ),
        (
            SDK + "services.s3.model.S3Exception",
            "Internal error (Service: S3, Status Code: 500, Request ID: 1)",
        ),
        (SDK + "services.s3.model.S3Exception", "Bad Request (Service: S3, Status Code: 400, Request ID: 1)"),
        (
            SDK + "services.s3.model.S3Exception",
            "The authorization header is malformed; the region 'eu' is wrong; expecting 'us' (Service: S3, Status Code: 400)",
        ),
        (SDK + "services.s3.model.S3Exception", "null (Service: S3, Status Code: 301, Request ID: 1)"),
        (
            "org.apache.spark.SparkException",
            "Caused by: ConnectionClosedException: Premature end of Content-Length delimited message body (expected: 9)",
        ),
        ("org.apache.spark.SparkException", "Caused by: java.net.SocketTimeoutException: Read timed out"),
        ("OSError", "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body."),
        ("OSError", "AWS Error INTERNAL_FAILURE during GetObject operation"),
        ("OSError", "AWS Error REQUEST_TIME_TOO_SKEWED during PutObject operation"),
        (
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
            "The DiskSpace quota of /lake is exceeded",
        ),
        ("java.io.IOException", "No space left on device"),
        ("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database file is locked (database is locked)"),
        ("java.io.FileNotFoundException", "/lake/data/1.parquet (Too many open files)"),
        ("OSError", "[Errno 30] Read-only file system: '/lake/data/1.parquet'"),
        ("OSError", "[Errno 122] Disk quota exceeded"),
        (SDK + "services.s3.model.S3Exception", "XMinioStorageFull (Service: S3, Status Code: 507)"),
        (
            "org.apache.spark.SparkException",
            "Lost task 0.0: java.io.IOException: Input/output error\n\tat java.base",
        ),
        ("OSError", "[Errno 5] Input/output error: '/lake/data/1.parquet'"),
        ("OSError", "[Errno 27] File too large"),
        (
            "org.apache.spark.api.python.PythonException",
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\n",
        ),
        ("OSError", "When listing: AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"),
    ],
)
def test_credentials_connections_and_classes_are_the_environment(name: str, text: str) -> None:
    assert is_environment([("org.apache.spark.SparkException", "Job aborted"), (name, text)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("java.io.FileNotFoundException", "s3://b/t/data/1.parquet"),
        (SDK + "services.s3.model.NoSuchKeyException", "Not found (Service: S3, Status Code: 404)"),
        (SDK + "core.exception.SdkClientException", "Data read has a different checksum than expected"),
        (
            "org.apache.spark.SparkException",
            "ExecutorLostFailure (executor 1 exited: Command exited with code 137)",
        ),
        ("java.lang.OutOfMemoryError", "Java heap space"),
        ("java.lang.IllegalStateException", "Cannot call methods on a stopped SparkContext"),
        ("OSError", "disk full"),
        ("org.apache.spark.api.python.PythonException", "Traceback\nOSError: Couldn't deserialize thrift\n"),
        ("java.lang.IllegalArgumentException", "Cannot parse the page header"),
        (
            "org.apache.iceberg.shaded.org.apache.parquet.shaded.org.apache.thrift.transport.TTransportException",
            "Socket is closed by peer.",
        ),
    ],
)
def test_failures_that_the_files_of_a_partition_may_cause_are_not(name: str, text: str) -> None:
    assert not is_environment([(name, text)])


def test_causes_of_a_python_error_are_at_most_32() -> None:
    error = ValueError("0")
    for number in range(1, 40):
        cause, error = error, ValueError(str(number))
        error.__cause__ = cause
    assert [text for _, text in python_causes(error)] == [str(39 - number) for number in range(32)]


def test_causes_of_a_python_error_are_named_outermost_first() -> None:
    try:
        try:
            raise socket.gaierror(-2, "Name or service not known")
        except OSError as why:
            raise RuntimeError("the catalog does not answer") from why
    except RuntimeError as error:
        causes = python_causes(error)
    assert causes == (
        ("RuntimeError", "the catalog does not answer"),
        ("gaierror", "[Errno -2] Name or service not known"),
    )
    assert is_environment(causes)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("OSError: [Errno 28] No space left on device", "free space there, or raise the quota"),
        ("IOException: Read-only file system", "make the file system writable"),
        (
            "OSError: [Errno 24] Too many open files: '/lake'",
            "raise the limit of open files of this process (ulimit -n)",
        ),
        (
            "IOException: Input/output error",
            "check the disk of the file system, or name another folder for scratch files (SPARK_LOCAL_DIRS)",
        ),
        (
            "OSError: [Errno 27] File too large",
            "raise the limit of the size of a file (ulimit -f), or use a file system that takes larger files",
        ),
        ("UnknownHostException: s3.example", None),
    ],
)
def test_file_system_that_takes_no_writes_has_its_fix(text: str, fix: str | None) -> None:
    assert file_system_fix(text) == fix
