"""The engine without a JVM."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.outcomes.outcome import CommitStatus, Rejection
from iceberg_maint.engines.spark import engine as engine_module
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.ports.engine import CommitContext, EnvironmentFailedError
from iceberg_maint_tests.support.context import commit_context


def no_reader(_table: str) -> MetadataReader:
    raise AssertionError("nothing is read")


@pytest.mark.parametrize("how", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("no answer")])
def test_start_on_a_jvm_that_has_died_says_so(how: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        @property
        def jvm(self) -> NoReturn:
            raise how

    engine = SparkEngine(lambda: None, no_reader)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(engine, "_bridge", Dead())
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
