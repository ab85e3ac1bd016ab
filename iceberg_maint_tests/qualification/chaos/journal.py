"""Journals: what a foreign writer meant to commit, and what it was told. One file per writer, one JSON
document per line; a line is on disk before what it tells of is done."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from iceberg_maint.engines.spark.jvm.java_errors import causes
from iceberg_maint_tests.qualification.chaos.lake import Row

_DEFINITE = (
    "CommitFailedException",
    "ValidationException",
    "AnalysisException",
    "NotFoundException",
    "FileNotFoundException",
    "FileNotFoundError",
)
"""Exceptions, of Iceberg's Java, of PyIceberg or of Spark, after which nothing was committed."""


class Answer(StrEnum):
    """What the writer was told."""

    ACKED = "acked"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a commit does to the rows: those with the ids in `delete` go, then `put` come."""

    delete: tuple[int, ...] = ()
    put: tuple[Row, ...] = ()


@dataclass(slots=True)
class Attempt:
    """One commit of a writer. `change` is what it is besides rows: a tag, a column, a spec. `answer` is
    None while the writer waits, or when it died waiting."""

    token: str
    table: str
    kind: str
    effect: Effect
    change: dict[str, Any]
    started_ms: int
    answer: Answer | None = None
    ended_ms: int | None = None
    error: str = ""

    @property
    def has_rows(self) -> bool:
        """Whether it makes a snapshot."""
        return bool(self.effect.delete or self.effect.put)


class Journal:
    """The journal a writer writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def commit(
        self,
        table: str,
        kind: str,
        do: Callable[[str], object],
        effect: Effect | None = None,
        change: dict[str, Any] | None = None,
    ) -> Answer:
        """Runs `do` with a new token, which marks the snapshot, and writes down what came of it."""
        token = uuid.uuid4().hex
        effect = effect or Effect()
        self._write(
            token=token,
            table=table,
            kind=kind,
            delete=effect.delete,
            put=effect.put,
            change=change or {},
            ms=_now_ms(),
        )
        answer, error = Answer.ACKED, ""
        try:
            do(token)
        except Exception as why:  # noqa: BLE001 - whatever it was, the writer lives on
            answer, error = judge(why)
        self._write(token=token, answer=answer, error=error, ms=_now_ms())
        return answer

    def note(self, **what: Any) -> None:
        """Any other line."""
        self._write(**what, ms=_now_ms())

    def close(self) -> None:
        """Ends it."""
        self._file.close()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")


def judge(error: BaseException) -> tuple[Answer, str]:
    """Whether a commit that raised this certainly failed, and why in one line."""
    chain = [f"{name}: {message}" for name, message in causes(error)]
    python = f"{type(error).__name__}: {error}"
    names = [part.partition(":")[0].rpartition(".")[2] for part in (*chain, python)]
    unknown = any("CommitStateUnknown" in name for name in names)
    definite = not unknown and any(name in _DEFINITE for name in names)
    text = " <- ".join(part.splitlines()[0] for part in (chain or [python]))
    return Answer.FAILED if definite else Answer.UNKNOWN, text[:600]


@dataclass(slots=True)
class Reader:
    """Reads a journal that is still written to; `attempts` by token, in order."""

    path: Path
    attempts: dict[str, Attempt] = field(default_factory=dict)
    _at: int = 0

    def read(self) -> list[Attempt]:
        """Takes what came since; gives the attempts that were acknowledged with it."""
        acked = []
        for line in self._lines():
            token = line.get("token")
            if token is None:
                continue
            if "answer" not in line:
                effect = Effect(tuple(line["delete"]), tuple(_row(r) for r in line["put"]))
                self.attempts[token] = Attempt(
                    token, line["table"], line["kind"], effect, line["change"], line["ms"]
                )
                continue
            attempt = self.attempts[token]
            attempt.answer, attempt.error = Answer(line["answer"]), line["error"]
            attempt.ended_ms = line["ms"]
            if attempt.answer is Answer.ACKED:
                acked.append(attempt)
        return acked

    def _lines(self) -> Iterable[dict[str, Any]]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._at)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # half of it is still to come
                self._at += len(raw)
                yield json.loads(raw)


def _row(values: Iterable[Any]) -> Row:
    a, b, c, d, e = values
    return (int(a), int(b), int(c), int(d), str(e))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
