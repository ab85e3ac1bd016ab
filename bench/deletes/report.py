"""What the measurements of `bench.deletes.equality` say, and whether the targets are met."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.deletes.tables import SHAPES, table

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and the least it must be; a missed stretch does not fail."""

    what: str
    measured: float
    least: float
    stretch: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.least


def report(parts: dict[str, Any]) -> int:
    """Prints tables and one line of JSON; 1 when a run failed or a target is missed that is no stretch."""
    from rich.console import Console

    console = Console(width=150)
    for name in ("speed", "smallest"):
        for shape, runs in parts.get(name, {}).items():
            console.print(_actions(name, shape, runs))
    if "memory" in parts:
        console.print(_actions("memory", "heavy", parts["memory"]["runs"]))
    if "beyond" in parts:
        console.print(_actions("beyond", "beyond", parts["beyond"]["beyond"]))
    if "reads" in parts:
        console.print(_reads(parts["reads"]))
    targets = list(_targets(parts))
    console.print(_of_targets(targets))
    failed = [r for r in _all_runs(parts) if not r["ok"]]
    for r in failed:
        console.print(f"FAILED: {r['action']} on {r['table']} in {r['heap_mb']} MB: {r['why']}")
    figures = {t.what: round(t.measured, 2) for t in targets}
    told = {"figures": figures, "cost": _costs(parts), "estimates": _estimates(parts), "failed": len(failed)}
    print(json.dumps(told))
    return 1 if failed or any(not t.met and not t.stretch for t in targets) else 0


def _targets(parts: dict[str, Any]) -> Iterator[Target]:
    for shape, runs in parts.get("speed", {}).items():
        what = f"{shape}: stock's wall time over ours, comfortable heap"
        is_partitioned = SHAPES[shape].regions > 1
        yield Target(what, _times_stock(runs, "auto"), 3 if is_partitioned else 5)
        cached = _times_stock(runs, "auto", "stock-cached")
        least = 2.5 if is_partitioned else 3
        yield Target(f"{what}, stock with cache-delete-files", cached, least, stretch=not is_partitioned)
    for shape, runs in parts.get("smallest", {}).items():
        what = f"{shape}: the same at stock's smallest heap"
        yield Target(what, _times_stock(runs, "auto"), 5)
        yield Target(f"{what}, stretch", _times_stock(runs, "auto"), 10, stretch=True)
    if "memory" in parts:
        found = parts["memory"]
        yield Target("heavy: stock's smallest heap, GB", found["stock_heap_mb"] / 1024, 5)
        for action in ("convert", "rewrite"):
            ours = found[f"{action}_heap_mb"]
            ratio = found["stock_heap_mb"] / ours if ours else 0.0
            yield Target(f"heavy: stock's smallest heap over that of {action}", ratio, 8)
            yield Target(f"heavy: the same of {action}, stretch", ratio, 12, stretch=True)
    if "beyond" in parts:
        done = sum(r["ok"] for runs in parts["beyond"]["beyond"].values() for r in runs)
        yield Target("beyond: routes that finish in 1 GB with the right rows", done, 2)
    ratios = [e["estimated_bytes"] / e["peak_bytes"] for e in _estimates(parts)]
    if ratios:
        yield Target("least estimate over measured peak", min(ratios), 0.8)
        yield Target("largest estimate over measured peak, inverse", 1 / max(ratios), 1 / 1.2)


def _costs(parts: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Stock's cost over that of what the planner chooses, or of each route where it was not asked."""
    found = {}
    for part in ("speed", "smallest", "memory"):
        tables = (
            {"heavy": parts["memory"]["runs"]} if part == "memory" and part in parts else parts.get(part, {})
        )
        for shape, runs in tables.items():
            for action in ("auto",) if "auto" in runs else ("convert", "rewrite"):
                if action in runs and any(r["ok"] for r in runs.get("stock", ())):
                    cores, held = _costs_of_stock(runs, action)
                    what = {"core_hours": round(cores, 2), "gigabyte_hours": round(held, 2)}
                    found[f"{part}: {shape}, {action}"] = what
    return found


def _times_stock(runs: dict[str, list[Run]], action: str, variant: str = "stock") -> float:
    """How often our wall time goes into that of stock, with its defaults or another variant."""
    stock, ours = (_median(runs[name], "wall_seconds") for name in (variant, action))
    return stock / ours if stock and ours else 0.0


def _actions(part: str, shape: str, runs: dict[str, list[Run]]) -> Any:
    from rich.table import Table

    made, of = SHAPES[shape], table(SHAPES[shape])[1]
    gigabytes = of.data_bytes / 1e9
    shown = Table(
        "action", "heap MB", "wall s", "spread", "CPU s", "stock/ours wall", "core-h", "GB-h", "peak RSS MB", "GB-h/GB", "core-h/GB",
        "count s", "filter s",
        title=f"{part}: {shape}, v{made.version}: {made.rows:,} rows in {of.data_files} files ({of.data_bytes / 1e6:.0f} MB), "
        f"{made.keys:,} delete keys in {of.delete_files} files",
    )  # fmt: skip
    for action, found in runs.items():
        done = [r for r in found if r["ok"]]
        if not done:
            shown.add_row(action, str(found[0]["heap_mb"]) if found else "", "FAILED")
            continue
        wall, cpu = (_median(done, key) for key in ("wall_seconds", "cpu_seconds"))
        walls = [r["wall_seconds"] for r in done]
        costs = _gigabyte_hours(done), cpu / 3600
        has_stock = any(r["ok"] for r in runs.get("stock", ()))
        ratios = _costs_of_stock(runs, action) if has_stock else ()
        shown.add_row(
            action,
            str(done[0]["heap_mb"]),
            f"{wall:.1f}",
            f"{min(walls):.1f} to {max(walls):.1f}",
            f"{cpu:.1f}",
            f"{_times_stock(runs, action):.2f}" if has_stock else "",
            *([f"{ratio:.2f}" for ratio in ratios] or ("", "")),
            f"{max(r['peak_bytes'] for r in done) / 1e6:.0f}",
            *(f"{cost / gigabytes:.3f}" for cost in costs),
            f"{_median(done, 'count_seconds'):.1f}",
            f"{_median(done, 'filter_seconds'):.1f}",
        )
    return shown


def _gigabyte_hours(runs: list[Run]) -> float:
    """The heap held for the time it took."""
    held = runs[0]["heap_mb"] * 1024**2 / 1e9 if runs else 0.0
    return held * _median(runs, "wall_seconds") / 3600


def _costs_of_stock(runs: dict[str, list[Run]], action: str) -> tuple[float, float]:
    """Core-hours and GB-hours of stock over those of an action on the same table."""
    cpu = [_median(runs[a], "cpu_seconds") for a in ("stock", action)]
    held = [_gigabyte_hours([r for r in runs[a] if r["ok"]]) for a in ("stock", action)]
    return cpu[0] / cpu[1] if cpu[1] else 0.0, held[0] / held[1] if held[1] else 0.0


def _reads(found: dict[str, list[Run]]) -> Any:
    from rich.table import Table

    shown = Table(
        "read", "count s", "filtered aggregate s", "CPU s", title="reads of `upsert` in a fresh process"
    )
    for after, runs in found.items():
        values = (_median(runs, key) for key in ("count_seconds", "filter_seconds", "cpu_seconds"))
        shown.add_row(after if after == "before" else f"after {after}", *(f"{v:.1f}" for v in values))
    return shown


def _of_targets(targets: list[Target]) -> Any:
    from rich.table import Table

    shown = Table("figure", "measured", "at least", "")
    for t in targets:
        verdict = "" if t.met else "stretch missed" if t.stretch else "MISSED"
        shown.add_row(t.what, f"{t.measured:.2f}", f"{t.least:.3g}", verdict)
    return shown


def _all_runs(parts: dict[str, Any]) -> Iterator[Run]:
    """Every run of every part; bisection's failures are no part of them."""
    groups = [
        *parts.get("speed", {}).values(),
        *parts.get("smallest", {}).values(),
        *parts.get("beyond", {}).values(),
    ]
    groups += [parts["memory"]["runs"]] if "memory" in parts else []
    groups += [parts["reads"]] if "reads" in parts else []
    for group in groups:
        for runs in group.values():
            yield from runs


def _estimates(parts: dict[str, Any]) -> list[dict[str, Any]]:
    """What our runs put on record of memory, each of them once."""
    found = {
        (r["table"], r["action"], r["heap_mb"]): {"run": f"{r['table']} {r['action']} {r['heap_mb']} MB", **m}
        for r in _all_runs(parts)
        for m in r.get("memory", ())
    }
    return list(found.values())


def _median(runs: list[Run], key: str) -> float:
    """Of the runs that finished; 0 when none did."""
    done = [r[key] for r in runs if r["ok"]]
    return statistics.median(done) if done else 0.0
