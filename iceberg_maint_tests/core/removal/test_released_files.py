"""Released files: compared with the reachability of every file by brute force, on random histories."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.model.table_state import FileKind, Manifest, Snapshot
from iceberg_maint.core.removal.clock_skew import MAX_SKEW_MS
from iceberg_maint.core.removal.released_file_rules import (
    NamedFile,
    Release,
    ReleasedFile,
    ReleasedKind,
    RemovedSnapshot,
    collect,
    release_of,
)
from iceberg_maint_tests.support.core.snapshots import state_of

DATA, VECTOR, EQUALITY = FileKind.DATA, FileKind.DELETION_VECTOR, FileKind.EQUALITY_DELETES


@dataclass
class History:
    """Snapshots on branches. Each lists manifests; a manifest has live files and files marked DELETED."""

    rng: random.Random
    manifests: dict[str, tuple[NamedFile, ...]] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    snapshots: list[RemovedSnapshot] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    names: int = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}-{self.names}"

    def commit(self, listed: Iterable[str]) -> None:
        manifest_list, number = self.name("list"), len(self.snapshots) + 1
        self.lists[manifest_list] = tuple(listed)
        statistics = tuple(self.name("stats") for _ in range(self.rng.randrange(2)))
        self.snapshots.append(RemovedSnapshot(number, 1000 * number, manifest_list, statistics))

    def manifest(self, files: Iterable[NamedFile]) -> str:
        name = self.name("manifest")
        self.manifests[name] = tuple(files)
        return name

    def change(self) -> None:
        """One commit on the head or, as on a branch, on an older snapshot."""
        base = self.rng.choice((*self.snapshots[-3:], self.snapshots[-1], self.snapshots[-1]))
        listed = list(self.lists[base.manifest_list])
        kind = self.rng.choice(("append", "overwrite", "regroup", "deletes", "register again", "truncate"))
        if kind == "append":
            listed.append(self.manifest(self.fresh(DATA)))
        elif kind == "deletes":
            # Several deletion vectors are blobs of one Puffin file.
            [puffin] = self.fresh(VECTOR, 1)
            listed.append(self.manifest((puffin, puffin, *self.fresh(EQUALITY))))
        elif kind == "overwrite" and listed:
            old = listed.pop(self.rng.randrange(len(listed)))
            kept = [f for f in self.manifests[old] if self.rng.random() < 0.5]
            listed.append(self.manifest((*kept, *self.fresh(DATA))))
        elif kind == "regroup":
            listed = [self.manifest(f for m in listed for f in self.manifests[m])]
        elif kind == "register again":
            every = sorted({f.path: f for files in self.manifests.values() for f in files}.items())
            listed.append(self.manifest(f for _, f in self.rng.sample(every, min(2, len(every)))))
        elif kind == "truncate":
            listed = []
        self.commit(listed)

    def fresh(self, kind: FileKind, count: int = 2) -> list[NamedFile]:
        return [NamedFile(self.name(kind.value), kind, 10) for _ in range(count)]

    def reach(self, snapshots: Iterable[RemovedSnapshot]) -> set[str]:
        """Every file of the snapshots, by brute force."""
        found: set[str] = set()
        for s in snapshots:
            found |= {s.manifest_list, *s.statistics, *self.lists[s.manifest_list]}
            found |= {f.path for m in self.lists[s.manifest_list] for f in self.manifests[m]}
        return found

    def named(self, snapshots: Iterable[RemovedSnapshot]) -> set[str]:
        """The files of the snapshots that are known without a manifest being opened."""
        return {n for s in snapshots for n in (s.manifest_list, *s.statistics, *self.lists[s.manifest_list])}

    def listed(self, manifest_list: str) -> Iterator[Manifest]:
        for path in self.lists[manifest_list]:
            yield Manifest(path, 100, False, 0, 1, 1, 1, len(self.manifests[path]), 0, 0, 1, 0)

    def files(self, manifest: Manifest) -> Iterator[NamedFile]:
        self.opened.append(manifest.path)
        yield from self.manifests[manifest.path]


class Names:
    """What `PathTables` does, in memory."""

    def __init__(self, reached: set[str]) -> None:
        self.reached, self.released = reached, dict[str, ReleasedFile]()

    def add(self, files: Iterable[ReleasedFile]) -> int:
        before = len(self.released)
        for f in files:
            if f.path not in self.reached:
                self.released.setdefault(f.path, f)
        return len(self.released) - before


def random_history(seed: int) -> History:
    history = History(random.Random(seed))
    history.commit([history.manifest(history.fresh(DATA))])
    for _ in range(history.rng.randrange(12)):
        history.change()
    return history


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_released_files_of_a_random_history_are_those_of_the_removed_snapshots_alone(seed: int) -> None:
    history = random_history(seed)
    removed = [s for s in history.snapshots if history.rng.random() < 0.6]
    kept = [s for s in history.snapshots if s not in removed]
    names = Names(history.named(kept))
    collect(Release("b", "t", "u", "m", 99_000, tuple(removed)), history.listed, history.files, names.add)
    names.reached |= history.reach(kept)
    released = {path for path in names.released if path not in names.reached}
    assert released == history.reach(removed) - history.reach(kept)
    assert not set(history.opened) & history.named(kept)
    assert len(history.opened) == len(set(history.opened))


def test_released_file_has_kind_size_and_the_oldest_removed_snapshot() -> None:
    history = History(random.Random(0))
    shared = history.manifest([NamedFile("f", DATA, 10), NamedFile("d", EQUALITY, 20)])
    history.commit([shared])
    history.commit([shared, history.manifest([NamedFile("v", VECTOR, 30)])])
    history.snapshots = [replace(s, statistics=("s",)) for s in history.snapshots]
    names = Names(set())
    collect(
        Release("b", "t", "u", "m", 99_000, tuple(history.snapshots)),
        history.listed,
        history.files,
        names.add,
    )
    facts = {
        p: (f.kind.value, f.size_bytes, f.snapshot_id, f.committed_ms) for p, f in names.released.items()
    }
    assert facts == {
        "f": ("data", 10, 1, 1000),
        "d": ("equality_deletes", 20, 1, 1000),
        "v": ("deletion_vector", 30, 2, 2000),
        "s": ("statistics", None, 1, 99_000),
        shared: ("manifest", 100, 1, 1000),
        history.lists[history.snapshots[1].manifest_list][1]: ("manifest", 100, 2, 2000),
        history.snapshots[0].manifest_list: ("manifest_list", None, 1, 1000),
        history.snapshots[1].manifest_list: ("manifest_list", None, 2, 2000),
    }


@pytest.mark.parametrize(
    ("size_bytes", "modified_ms", "same"),
    [
        (10, 1000 + MAX_SKEW_MS, True),
        (10, 1001 + MAX_SKEW_MS, False),
        (11, 1000, False),
        (10, None, False),
    ],
)
def test_file_is_the_released_one_by_its_size_and_its_time(
    size_bytes: int, modified_ms: int | None, same: bool
) -> None:
    assert ReleasedFile("f", ReleasedKind.DATA, 10, 1, 1000).is_same(size_bytes, modified_ms) is same


def test_file_without_a_stated_size_is_the_released_one_by_its_time() -> None:
    assert ReleasedFile("f", ReleasedKind.STATISTICS, None, 1, 1000).is_same(77, 1000)


def test_release_of_snapshots_has_their_lists_and_statistics() -> None:
    first = Snapshot(1, None, 1, 10, "append", {}, "list-1")
    early = Snapshot(2, 1, 2, 20, "append", {}, "")
    third = Snapshot(3, 2, 3, 30, "append", {}, "list-3")
    state = replace(state_of(first, early, third), last_updated_ms=40)
    document = {
        "statistics": [
            {"snapshot-id": 1, "statistics-path": "a"},
            {"snapshot-id": 3, "statistics-path": "b"},
        ],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "c"}],
    }
    release = release_of("batch", state, document, [1, 2, 9])
    assert release == Release(
        "batch",
        str(state.table),
        state.uuid,
        state.metadata_location,
        40,
        (RemovedSnapshot(1, 10, "list-1", ("a", "c")),),
    )
