"""The text of an error, as the ledger stores it."""

from __future__ import annotations

from iceberg_maint.runner.attempt_result import one_line

WORKER = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 3386, in main
    process()
  File "storage.py", line 37, in read
    return pa.py_buffer(path.read_bytes())
                        ^^^^^^^^^^^^^^^^^
FileNotFoundError: [Errno 2] No such file or directory: '/lake/a.parquet'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
"""


def test_error_of_a_spark_worker_is_named_without_the_stacks_around_it() -> None:
    assert one_line(RuntimeError(WORKER)) == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/lake/a.parquet'"
    )


def test_error_without_a_worker_has_its_class_and_at_most_500_characters() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert len(one_line(ValueError("x" * 600))) == 500


def test_traceback_that_was_cut_is_kept_as_text() -> None:
    cut = WORKER.partition("FileNotFoundError")[0]
    assert one_line(RuntimeError(cut)).startswith("RuntimeError: An error occurred while calling")
