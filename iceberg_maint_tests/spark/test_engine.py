"""The engine without a JVM."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark import engine as engine_module
from iceberg_maint.engines.spark.commit.rewrite_files import BatchFiles
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.engine import CommitContext, EnvironmentFailedError, Written
from iceberg_maint_tests.support.context import commit_context
from iceberg_maint_tests.support.ledger.values import make_batch, written


def no_reader(_table: str) -> MetadataReader:
    raise AssertionError("nothing is read")


LOST = [ConnectionRefusedError(111, "refused"), Py4JNetworkError("no answer")]


def dead(how: Exception) -> Any:
    """A bridge to a JVM that has died."""

    class Dead:
        @property
        def jvm(self) -> NoReturn:
            raise how

    return Dead()


@pytest.mark.parametrize("how", LOST)
def test_start_on_a_jvm_that_has_died_starts_another(how: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(engine_module, "drop_ended_jvm", lambda: dropped.append("dropped"))
    monkeypatch.setattr(engine_module, "bridge_of", lambda driver: SimpleNamespace(driver=driver))
    monkeypatch.setattr(engine_module, "versions", lambda _driver: {})
    engine = SparkEngine(lambda: "another", no_reader)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(engine, "_bridge", dead(how))
    engine._batch_files["b"] = BatchFiles((), None, {})  # type: ignore[arg-type]
    engine.start()
    assert (dropped, engine._start_bridge().driver) == (["dropped"], "another")  # type: ignore[attr-defined]
    assert engine._batch_files == {}


@pytest.mark.parametrize("how", LOST)
def test_start_on_another_program_s_jvm_that_has_died_says_so(
    how: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def driver() -> NoReturn:
        raise how

    monkeypatch.setattr(engine_module, "drop_ended_jvm", lambda: None)
    engine = SparkEngine(driver, no_reader)
    monkeypatch.setattr(engine, "_bridge", dead(how))
    with pytest.raises(EnvironmentFailedError, match=r"^ICM-175 .*: the JVM has died or does not answer\."):
        engine.start()


def test_start_raises_what_the_session_raises() -> None:
    def unfit() -> Any:
        raise OSError("no jars")

    with pytest.raises(OSError, match=r"^no jars$"):
        SparkEngine(unfit, no_reader).start()


def test_versions_are_known_after_the_jvm_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"spark": "4.1.4"}]
    bridge = SimpleNamespace(has_spark=True)
    monkeypatch.setattr(engine_module, "bridge_of", lambda _driver: bridge)
    monkeypatch.setattr(engine_module, "versions", lambda _driver: answers.pop())
    engine = SparkEngine(lambda: None, no_reader)  # type: ignore[arg-type, return-value]
    assert engine.versions() == {}
    engine._start_bridge()
    assert engine.versions() == engine.versions() == {"spark": "4.1.4"}
    bridge.has_spark = False
    assert engine.versions() == {"spark": "4.1.4, not started"}


@pytest.mark.parametrize("is_tried", [False, True])
def test_commit_whose_jvm_dies_is_rejected_only_before_a_try_of_the_swap(
    is_tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(_self: object, _batch: object, _written: object, context: CommitContext) -> NoReturn:
        if is_tried:
            context.record_try(7, "file:///t/metadata/1.json")
        raise Py4JNetworkError("no answer")

    recorded: list[tuple[int, str]] = []
    context = replace(commit_context(), record_try=lambda *base: recorded.append(base))
    monkeypatch.setattr(SparkEngine, "_commit", commit)
    engine = SparkEngine(lambda: None, no_reader)  # type: ignore[arg-type, return-value]
    if is_tried:
        with pytest.raises(Py4JNetworkError):
            engine.commit(None, None, context)  # type: ignore[arg-type]
        assert recorded == [(7, "file:///t/metadata/1.json")]
    else:
        result = engine.commit(None, None, context)  # type: ignore[arg-type]
        assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.ENVIRONMENT)
        assert recorded == []


@pytest.mark.parametrize(
    ("end", "code"),
    [("os.kill(os.getpid(), 9)", "ICM-175"), ("os._exit(3)", "ICM-124")],
    ids=["killed", "full"],
)
def test_write_whose_jvm_was_killed_did_not_run_out_of_memory(
    end: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> NoReturn:
        raise Py4JNetworkError("no answer")

    process = subprocess.Popen([sys.executable, "-c", f"import os; {end}"])
    assert process.wait() == (-9 if code == "ICM-175" else 3)
    monkeypatch.setattr(SparkEngine, "_write", write)
    engine = SparkEngine(lambda: None, no_reader)  # type: ignore[arg-type, return-value]
    bridge = SimpleNamespace(gateway=SimpleNamespace(proc=process), has_spark=True)
    monkeypatch.setattr(engine, "_bridge", bridge)
    with pytest.raises(IcebergMaintError) as failure:
        engine.write(make_batch("day=1"), Policy())
    assert failure.value.code == code


@pytest.mark.parametrize(
    ("outputs", "is_kept"),
    [(None, False), ({("other.parquet", None): "java"}, False), ({("out.parquet", None): "java"}, True)],
    ids=["none", "others", "these"],
)
def test_commit_takes_the_files_that_it_keeps_only_if_they_are_those_to_commit(
    outputs: dict[tuple[str, None], str] | None, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch("day=1")
    [file] = written(batch)
    proved: Any = Written((replace(file, path="out.parquet"),), None)  # type: ignore[arg-type]
    deletes: Any = None
    restored = BatchFiles((), deletes, {})
    monkeypatch.setattr(SparkEngine, "_activated_bridge", lambda _self: None)
    monkeypatch.setattr(engine_module, "load_planned_table", lambda *_: None)
    monkeypatch.setattr(engine_module, "restore_batch_files", lambda *_: restored)
    monkeypatch.setattr(engine_module, "commit_batch", lambda *given: given[-1])
    engine = SparkEngine(lambda: None, lambda _table: None)  # type: ignore[arg-type, return-value]
    kept = BatchFiles((), deletes, outputs or {})
    if outputs is not None:
        engine._batch_files[batch.batch_id] = kept
    assert engine.commit(batch, proved, commit_context()) is (kept if is_kept else restored)
    assert engine._batch_files == {}
