"""Passes that use up their time: the next one continues, and every file is judged by the newest metadata."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.ports.storage import OrphanWork, StoredFile
from iceberg_maint.removal import stored_listing
from iceberg_maint.removal.store_requests import RemovalLease
from iceberg_maint.removal.stored_listing import StoredListing
from iceberg_maint_tests.removal.test_scan import commit
from iceberg_maint_tests.support.removal.layouts import DAY_MS, LAYOUTS, ORPHANS, ShiftedStore
from iceberg_maint_tests.support.removal.passes import DAILY, OPERATION, TABLE, Passes

pytestmark = pytest.mark.seconds

ALL = ORPHANS + 1
PLACE = f"{LAYOUTS[0].table_folder}/{TRASH}"


class PagedStore(ShiftedStore):
    """Lists in the order of S3 from any path on, and counts the files that it lists of the table."""

    resumes = True

    def __init__(self, ahead_ms: int = 0) -> None:
        super().__init__(ahead_ms)
        self.listed: list[str] = []

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        for file in sorted(super().list(prefix), key=lambda f: f.path):
            if file.path > after:
                self.listed.append(file.path)
                yield file


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passes:
    monkeypatch.setattr(stored_listing, "_PAGE", 5)
    monkeypatch.setattr(stored_listing, "FILES", 15)
    return Passes(LAYOUTS[0].build(tmp_path), PagedStore())


def run(passes: Passes, is_over: Callable[[], bool] = lambda: False, **options: Any) -> OrphanWork:
    state = passes.lake.catalog.pin(TABLE)
    arguments: dict[str, Any] = {"in_flight": frozenset(), "sweep": True, "holds": lambda: True} | options
    return passes.remove_orphans().run(state, DAILY, is_over=is_over, **arguments)


def name(passes: Passes, path: Path) -> str:
    """Path below the table's folder."""
    return str(path.relative_to(passes.lake.folder / LAYOUTS[0].table_folder))


def over_after(count: int) -> Callable[[], bool]:
    """The time is used up at this question and later."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None


def places(passes: Passes) -> set[str]:
    """Original places of the files in the trash."""
    files = passes.lake.folder / PLACE / "files"
    return {str(p.relative_to(files)).partition("/")[2] for p in files.rglob("*") if p.is_file()}


def parts(passes: Passes) -> list[Path]:
    return sorted((passes.lake.folder / PLACE / "listing").glob("*"))


def finished(passes: Passes, each: int) -> int:
    """Runs passes of so many questions each until one is complete. Returns their number."""
    for number in range(1, 100):
        if not run(passes, over_after(each)).unfinished:
            return number
    raise AssertionError("the passes do not end")


def test_passes_that_run_out_of_time_end_with_the_trash_of_an_uninterrupted_pass(
    passes: Passes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = Passes(LAYOUTS[0].build(tmp_path_factory.mktemp("whole")), PagedStore())
    assert run(whole).trashed_files == ALL
    assert finished(passes, 3) > 3
    assert places(passes) == places(whole)
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [], ALL)
    assert parts(passes) == []
    # No file is listed again by a later pass, and no file is in two manifests.
    own = [p for p in passes.store.listed if TRASH not in p]  # type: ignore[attr-defined]
    assert len(own) == len(set(own))


def test_pass_stopped_between_pages_stores_the_listing_and_reports_it_unfinished(passes: Passes) -> None:
    work = run(passes, over_after(1))
    assert (work.unfinished, work.trashed_files, passes.lake.trashed()) == (True, 0, 0)
    [part] = parts(passes)
    header, *lines = map(json.loads, part.read_text().splitlines())
    assert (header["after"], header["complete"], header["files"]) == ("", False, len(lines))
    assert header["last"] == passes.store.listed[-1]  # type: ignore[attr-defined]


def test_file_committed_between_two_passes_of_a_listing_stays(passes: Passes) -> None:
    listed_orphan = min(passes.lake.orphans)
    while run(passes, over_after(3)).unfinished:
        if any(p.endswith(str(listed_orphan)) for p in passes.store.listed):  # type: ignore[attr-defined]
            break
    assert listed_orphan.exists()
    commit(passes.lake, name(passes, listed_orphan))
    run(passes)
    assert listed_orphan.exists()
    assert passes.lake.trashed() == ALL - 1


def test_file_committed_while_a_stopped_pass_moves_is_put_back(passes: Passes) -> None:
    chosen: list[Path] = []

    class Committing(PagedStore):
        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            if not chosen:
                chosen.append(Path(source.removeprefix("file://")))
                trashed = Path(target.removeprefix("file://"))
                commit(passes.lake, name(passes, chosen[0]))
                chosen[0].unlink()  # only its name was committed: the file itself is in the trash
                assert trashed.exists()

    passes.store = Committing()
    # The listing asks as well; the first move that is not the first question stops the pass.
    is_over = iter([False] * 1000)
    assert run(passes, lambda: bool(chosen) or next(is_over)).unfinished
    assert chosen[0].exists()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("step", range(0, 24, 4))
def test_pass_killed_at_any_step_of_a_stopped_listing_loses_nothing(passes: Passes, step: int) -> None:
    steps = iter(range(step))

    class Killing(PagedStore):
        def _step(self) -> None:
            if next(steps, None) is None:
                raise Killed

        def create(self, path: str, lines: Any) -> None:
            self._step()
            super().create(path, lines)
            self._step()

        def move(self, source: str, target: str) -> None:
            self._step()
            super().move(source, target)

        def delete(self, path: str) -> None:
            if "/listing/" in path:
                self._step()
            super().delete(path)

    store, passes.store = passes.store, Killing()
    with contextlib.suppress(Killed):
        finished(passes, 2)
    assert passes.lake.lost() == []
    passes.store = store
    finished(passes, 4)
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [], ALL)


@pytest.mark.parametrize(
    "damage", ["torn", "of another table", "gap", "old", "no first line", "of another name"]
)
def test_stored_listing_that_is_not_whole_is_discarded(passes: Passes, damage: str) -> None:
    for _ in range(3):
        assert run(passes, over_after(2)).unfinished
    begin = passes.store.listed[0]  # type: ignore[attr-defined]
    first, *_, last = parts(passes)
    if damage == "torn":
        last.write_text("".join(last.read_text().splitlines(keepends=True)[:-1]))
    elif damage == "of another table":
        uuid = passes.lake.catalog.pin(TABLE).uuid
        first.write_text(first.read_text().replace(uuid, uuid[::-1]))
    elif damage == "gap":
        first.unlink()
    elif damage == "no first line":
        last.write_text("")
    elif damage == "of another name":
        last.rename(last.with_stem(f"{last.stem}9"))
    else:
        passes.store = PagedStore(stored_listing.MAX_AGE_MS + 60_000)
    passes.store.listed.clear()  # type: ignore[attr-defined]
    assert not run(passes).unfinished
    assert passes.store.listed[0] == begin  # type: ignore[attr-defined]
    assert (passes.lake.lost(), parts(passes), passes.lake.trashed()) == ([], [], ALL)


def test_stored_listing_of_two_prefixes_is_continued(passes: Passes) -> None:
    passes.lake.plant(passes.lake.stays, passes.lake.folder / "elsewhere" / "1.parquet")
    target = passes.lake.target(exclusive_prefixes=(f"file://{passes.lake.folder}/elsewhere",))

    def listed(listing: StoredListing) -> list[StoredFile]:
        return [file for prefix in target.prefixes for file in listing.files(prefix)]

    first, second = (StoredListing(target, passes.store, RemovalLease(lambda: True)) for _ in range(2))
    assert (first.begin(1_000), first.resumed) == (1_000, False)
    files = listed(first)
    first.save()
    assert (second.begin(2_000), second.resumed) == (1_000, True)
    assert listed(second) == files
    assert files[-1].path == f"file://{passes.lake.folder}/elsewhere/1.parquet"


@pytest.mark.parametrize(
    ("counts", "is_resumed"), [((None, None), True), ((None,), False), ((None, 16), False)], ids=str
)
def test_listing_on_a_store_that_lists_from_the_start_is_used_if_it_is_complete(
    passes: Passes, counts: tuple[int | None, ...], is_resumed: bool
) -> None:
    for number in range(20):
        passes.lake.plant(passes.lake.stays, passes.lake.folder / "elsewhere" / f"{number}.parquet")
    target = passes.lake.target(exclusive_prefixes=(f"file://{passes.lake.folder}/elsewhere",))
    store = ShiftedStore()
    first, second = (StoredListing(target, store, RemovalLease(lambda: True)) for _ in range(2))
    first.begin(1_000)
    for prefix, count in zip(target.prefixes, counts, strict=False):
        list(islice(first.files(prefix), count))
    first.save()
    assert (store.resumes, parts(passes) != []) == (False, True)
    assert (second.begin(2_000), second.resumed) == ((1_000, True) if is_resumed else (2_000, False))


def test_file_that_grew_old_during_a_listing_stays(passes: Passes) -> None:
    young = passes.lake.folder / LAYOUTS[0].table_folder / "data" / "young.parquet"
    young.write_bytes(b"uncommitted")
    old_soon = time.time() - DAILY.older_than_seconds + 30
    os.utime(young, (old_soon, old_soon))
    assert run(passes, over_after(6)).unfinished
    passes.store.ahead_ms += 60_000
    assert not run(passes).unfinished
    assert young.exists()


@pytest.mark.parametrize("after_ms", [0, 1])
def test_metadata_file_of_a_second_owner_written_during_a_listing_is_found(
    passes: Passes, after_ms: int
) -> None:
    folder = passes.lake.folder / LAYOUTS[0].table_folder / "metadata"
    while not any("/metadata/" in path for path in passes.store.listed):  # type: ignore[attr-defined]
        assert run(passes, over_after(2)).unfinished
    newest = max(folder.glob("*.metadata.json"), key=lambda file: file.stat().st_mtime)
    written = folder / "00000-of-another.metadata.json"
    written.write_bytes(newest.read_bytes())
    begun_ms = json.loads(parts(passes)[0].read_text().splitlines()[0])["started_ms"]
    os.utime(written, ns=((begun_ms + after_ms) * 1_000_000,) * 2)
    work = run(passes, over_after(100))
    assert work.unlogged is not None
    assert [Path(path).name for path in work.unlogged.paths] == ["00000-of-another.metadata.json"]


def test_stopped_run_reports_its_time_and_is_due_at_once(passes: Passes) -> None:
    limited = replace(passes, policy=Policy(remove_orphan_files=DAILY, max_run_seconds=3))
    ticks = iter(range(100_000))
    limited.seconds = lambda: next(ticks) / 4
    stopped = limited.run()
    assert (stopped.outcome, stopped.reason) == (OutcomeStatus.IMPROVED, Reason.TIME_BUDGET)
    uuid = passes.lake.catalog.pin(TABLE).uuid
    assert passes.ledger.health.history(uuid, str(TABLE), OPERATION).last_done_ms is None
    lease = passes.ledger.leases.acquire(uuid, str(TABLE), "a data rewrite", 60, 0)
    assert lease is not None
    passes.ledger.leases.release(lease)
    # Without a limit the next run ends the pass, without back-off.
    done = passes.run()
    assert (done.outcome, passes.lake.trashed()) == (OutcomeStatus.IMPROVED, ALL)
    assert passes.run().batches == ()


def test_sweep_stopped_between_files_is_continued(passes: Passes) -> None:
    run(passes)
    passes.store = PagedStore(4 * DAY_MS + DAILY.delete_after_seconds * 1000)
    work = run(passes, over_after(3))
    assert work.unfinished
    assert 0 < work.swept_files < ALL
    assert passes.lake.trashed() == ALL - work.swept_files
    assert run(passes).swept_files == ALL - work.swept_files
    assert (passes.lake.lost(), passes.lake.trashed()) == ([], 0)


def test_approved_pass_has_no_time_limit(passes: Passes) -> None:
    state = passes.lake.catalog.pin(TABLE)
    with passes.remove_orphans().scan(state, DAILY, in_flight=frozenset()) as scan:
        digest = scan.digest
    approved = passes.remove_orphans().approving(digest)
    work = approved.run(
        state, DAILY, in_flight=frozenset(), sweep=False, holds=lambda: True, is_over=lambda: True
    )
    assert (work.unfinished, work.trashed_files) == (False, ALL)
