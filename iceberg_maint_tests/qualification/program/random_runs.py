"""Lives on record: what programs did, so that a run that was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
RECORD = PROJECT / ".cache" / "program" / "lives.jsonl"
_CODE = ("iceberg_maint", "iceberg_maint_tests/qualification/program", "iceberg_maint_tests/support/spark")


@dataclass(frozen=True, slots=True)
class Life:
    """One program: its steps, what was counted, and why it ended early, if it did."""

    seed: int
    steps: int
    counts: dict[str, int]
    why: str | None
    seconds: float


@dataclass
class Lives:
    """Those on record of this very code; without a file nothing is kept."""

    file: Path | None
    _known: dict[int, Life] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._code = {"commit": _commit(), "code": _digest()} if self.file else {}
        if self.file and self.file.exists():
            for line in self.file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                if row.pop("code") == self._code["code"]:
                    del row["commit"]
                    self._known[row["seed"]] = Life(**row)

    def all(self) -> list[Life]:
        """By seed."""
        return [self._known[seed] for seed in sorted(self._known)]

    def of(self, seed: int) -> Life | None:
        """The life of a seed, if it was lived."""
        return self._known.get(seed)

    def add(self, life: Life) -> None:
        """One more line of the file."""
        self._known[life.seed] = life
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(life), **self._code}) + "\n")


def tally(lives: Iterable[Life]) -> Iterator[str]:
    """What so many lives did, line by line."""
    lives = list(lives)
    counts: Counter[str] = Counter()
    for life in lives:
        counts.update(life.counts)
    failed = [life.seed for life in lives if life.why is not None]
    steps, seconds = sum(life.steps for life in lives), sum(life.seconds for life in lives)
    yield (
        f"{steps} steps in {len(lives)} lives, {len(failed)} differences {failed or ''}, "
        f"{seconds / max(steps, 1):.2f} s a step"
    )
    for name, count in sorted(counts.items()):
        yield f"  {count:6} {name}"


def _digest() -> str:
    """Of all the code that decides how a life goes."""
    found = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            found.update(path.relative_to(PROJECT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def _commit() -> str:
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    for told in tally(Lives(RECORD).all()):
        print(told)
