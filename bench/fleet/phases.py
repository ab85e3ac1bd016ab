"""The CPU seconds of a run by phase: a context whose ports note what their calls use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from threading import get_ident
from time import process_time
from typing import Any

from bench.used import NOTHING, plus, since
from iceberg_maint.engines.spark.session.process_tree import Used, used
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.ledger import with_parts

_PHASE_OF_CALL = {
    "pin": "pin",
    "pointers": "pin",
    "measure": "measure",
    "live_files": "plan",
    "changed_files": "plan",
    "start": "start Spark",
    "write": "write and prove",
    "reuse_files": "write and prove",
    "commit": "commit by the gate",
}
_SPARK = frozenset({"start Spark", "write and prove", "commit by the gate"})


@dataclass(slots=True)
class Phases:
    """CPU seconds by phase. A phase within another one counts only as itself. Phases of one thread are counted:
    calls in other threads are part of the phase that waits for them."""

    by_phase: dict[str, Used] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    _open: list[str] = field(default_factory=lambda: ["decide, record and the rest"])
    _since: Used = NOTHING
    _thread: int = field(default_factory=get_ident)

    def begin(self) -> None:
        """Starts to count."""
        self._since = used()

    def end(self) -> None:
        """Counts up to now."""
        self._count(tree=True)

    @contextmanager
    def phase(self, name: str, call: str) -> Iterator[None]:
        """Counts the body as this phase."""
        if get_ident() != self._thread:
            yield
            return
        self.calls[call] = self.calls.get(call, 0) + 1
        tree = name in _SPARK
        self._count(tree=tree)
        self._open.append(name)
        try:
            yield
        finally:
            self._count(tree=tree)
            self._open.pop()

    def _count(self, *, tree: bool) -> None:
        # The JVM and the workers are read only where Spark works: the ledger is called too often.
        now = used() if tree else self._since._replace(driver=process_time())
        name = self._open[-1]
        self.by_phase[name] = plus(self.by_phase.get(name, NOTHING), since(now, self._since))
        self._since = now


class _Noted:
    """A port whose calls are noted."""

    def __init__(self, port: Any, phases: Phases, phase_of: Callable[[str], str | None]) -> None:
        self._port, self._phases, self._phase_of = port, phases, phase_of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        phase = self._phase_of(name)
        if phase is None or not callable(value):
            return value

        @wraps(value)
        def noted(*given: Any, **named: Any) -> Any:
            with self._phases.phase(phase, name):
                return value(*given, **named)

        self.__dict__[name] = noted
        return noted


class _NotedCatalogs(Mapping[str, Any]):
    def __init__(self, catalogs: Mapping[str, Any], phases: Phases) -> None:
        self._catalogs = catalogs
        self._noted = {name: _Noted(catalogs[name], phases, _PHASE_OF_CALL.get) for name in catalogs}

    def __getitem__(self, name: str) -> Any:
        return self._noted[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._noted)

    def __len__(self) -> int:
        return len(self._noted)


def noted(context: Context, phases: Phases) -> Context:
    """Returns the context with ports that note their calls."""
    return changed(
        context,
        ledger=with_parts(context.ledger, lambda part: _Noted(part, phases, lambda _name: "ledger")),
        catalogs=_NotedCatalogs(context.catalogs, phases),
        engine=lambda: _Noted(context.engine(), phases, _PHASE_OF_CALL.get),
        orphan_files=lambda table: _Noted(
            context.storage.orphan_files(table), phases, {"run": "search for orphan files"}.get
        ),
    )
