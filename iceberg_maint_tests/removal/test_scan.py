"""Each guard of the scan: what it keeps, and where it refuses altogether."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_maint.catalog import reachable_files
from iceberg_maint.core.model.location import Equivalences, LocationOwner
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.orphan_scan import Scan, _check_reached, scan
from iceberg_maint.removal.target import Removal, Target, check_second_opinion
from iceberg_maint_tests.support.removal.layouts import DATA_FILES, LAYOUTS, ORPHANS, Lake, ShiftedStore

pytestmark = pytest.mark.seconds

PLAIN = LAYOUTS[0]
POLICY = RemoveOrphanFilesPolicy()
DAY_SECONDS = 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return PLAIN.build(tmp_path)


@pytest.fixture
def run(lake: Lake) -> Iterator[Callable[..., Scan]]:
    """Scans the lake's table; what is opened is closed."""
    opened: list[Scan] = []

    def run_scan(
        target: Target | None = None,
        policy: RemoveOrphanFilesPolicy = POLICY,
        store: ShiftedStore | None = None,
        **changes: Any,
    ) -> Scan:
        target, store = target or lake.target(**changes), store or ShiftedStore()
        found = scan(Removal(target, policy, store, lake.walk(target), lake.folder, store.local_now_ms))
        opened.append(found)
        return found

    yield run_scan
    for found in opened:
        found.paths.close()


def orphans_of(found: Scan) -> set[str]:
    return {o.path.rpartition("/")[2] for o in found.paths.orphans()}


def properties(lake: Lake, **changes: str) -> Target:
    target = lake.target()
    return replace(target, state=replace(target.state, properties=changes))


Run = Callable[..., Scan]


def test_scan_reports_what_stays_and_why(run: Run) -> None:
    found = run()
    assert found.counts.orphan_files == ORPHANS + 1
    assert found.counts.kept == {
        Kept.REACHABLE: DATA_FILES + 2 + 3,  # manifest lists and manifests
        Kept.METADATA_FILE: 2,
        Kept.HIDDEN: 2,
    }
    assert found.counts.listed_files == found.counts.orphan_files + sum(found.counts.kept.values())
    assert found.digest == run().digest


def stored(lake: Lake) -> dict[Path, int]:
    """All files and when they were written, but for what a scan notes of old metadata files."""
    found = (p for p in lake.folder.rglob("*") if p.is_file() and not p.match("metadata-*.db"))
    return {p: p.stat().st_mtime_ns for p in found}


def test_scan_moves_nothing_and_leaves_nothing(run: Run, lake: Lake) -> None:
    before = stored(lake)
    found = run()
    found.paths.close()
    assert stored(lake) == before


def test_file_younger_than_the_age_by_the_stores_clock_stays(run: Run, lake: Lake) -> None:
    young, old = (
        lake.folder / PLAIN.table_folder / "data" / "young",
        lake.folder / PLAIN.table_folder / "data" / "old",
    )
    for place, seconds in ((young, 7 * DAY_SECONDS - 60), (old, 7 * DAY_SECONDS + 60)):
        place.write_bytes(b"x")
        os.utime(place, (time.time() - seconds,) * 2)
    assert orphans_of(run()) & {"young", "old"} == {"old"}


def test_file_of_the_future_and_file_without_time_stay(run: Run, lake: Lake) -> None:
    future = lake.folder / PLAIN.table_folder / "data" / "future"
    future.write_bytes(b"x")
    os.utime(future, (time.time() + DAY_SECONDS,) * 2)

    class Timeless(ShiftedStore):
        def list(self, prefix: str) -> Iterator[StoredFile]:
            for file in super().list(prefix):
                yield replace(file, modified_ms=None) if "orphan-1" in file.path else file

    found = orphans_of(run(store=Timeless()))
    assert "future" not in found
    assert {n for n in found if n.startswith("orphan-1")} == set()
    assert "orphan-2.parquet" in found


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (replace(POLICY, older_than_seconds=DAY_SECONDS - 1), r"ICM-114 .* Fix: set it to 86400 or more"),
        (replace(POLICY, delete_after_seconds=DAY_SECONDS - 1), "ICM-114"),
    ],
)
def test_policy_below_the_floor_is_refused(run: Run, policy: RemoveOrphanFilesPolicy, code: str) -> None:
    with pytest.raises(RefusedError, match=code):
        run(policy=policy)


def test_table_whose_owner_forbids_it_is_refused(run: Run, lake: Lake) -> None:
    with pytest.raises(RefusedError, match="ICM-110"):
        run(properties(lake, **{"gc.enabled": "false"}))


@pytest.mark.parametrize("minutes", [-6, 6])
def test_clock_that_is_off_is_refused(lake: Lake, minutes: int) -> None:
    target, store = lake.target(), ShiftedStore()
    with pytest.raises(RefusedError, match="ICM-115"):
        scan(
            Removal(
                target,
                POLICY,
                store,
                lake.walk(target),
                lake.folder,
                lambda: store.local_now_ms() + minutes * 60_000,
            )
        )


def test_location_of_another_table_is_refused(run: Run, lake: Lake) -> None:
    at = f"file:{lake.folder}/{PLAIN.table_folder}"
    for theirs in (
        at,
        at + "/u",
        at.rpartition("/")[0],
        at.replace("/db/", "/db//x/../").upper().replace("FILE", "file"),
    ):
        with pytest.raises(RefusedError, match="ICM-111"):
            run(others=(LocationOwner("other.db.u", "2", (theirs,)),))


def test_metadata_of_a_table_in_no_catalog_is_refused(run: Run, lake: Lake) -> None:
    nested = lake.folder / PLAIN.table_folder / "nested" / "metadata" / "1.metadata.json"
    nested.parent.mkdir(parents=True)
    for content in (b'{"table-uuid": "another"}', b"unreadable", b'{"location": "file:///x"}', b"[]"):
        nested.write_bytes(content)
        with pytest.raises(RefusedError, match="ICM-111"):
            run()
    nested.write_text(json.dumps({"table-uuid": lake.target().state.uuid, "last-updated-ms": 1}))
    run()


def test_whole_bucket_is_refused(run: Run, lake: Lake) -> None:
    target = lake.target()
    with pytest.raises(RefusedError, match="ICM-111"):
        run(
            replace(target, state=replace(target.state, location="file:///", metadata_location="file:///m/1"))
        )


@pytest.mark.parametrize(
    "key",
    ["write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path"],
)
def test_files_elsewhere_need_a_declared_prefix(run: Run, lake: Lake, key: str) -> None:
    with pytest.raises(RefusedError, match="ICM-112"):
        run(properties(lake, **{key: f"file://{lake.folder}/elsewhere"}))
    inside = f"file://{lake.folder}/{PLAIN.table_folder}/elsewhere"
    run(properties(lake, **{key: inside}))


def test_declared_prefix_on_other_storage_is_refused(run: Run, lake: Lake) -> None:
    with pytest.raises(RefusedError, match=r"ICM-113 .*s3://bucket/t is on another kind of storage"):
        run(exclusive_prefixes=("s3://bucket/t",))


def test_declared_prefix_of_another_table_is_refused(run: Run, lake: Lake) -> None:
    elsewhere = f"file://{lake.folder}/elsewhere"
    with pytest.raises(RefusedError, match="ICM-111"):
        run(exclusive_prefixes=(elsewhere,), others=(LocationOwner("u", "2", (elsewhere + "/u",)),))


def test_relative_location_is_refused(run: Run, lake: Lake) -> None:
    with pytest.raises(RefusedError, match="ICM-113"):
        run(properties(lake, **{"write.data.path": "data"}))


class Aliased(ShiftedStore):
    """A store that lists its files under another scheme or authority."""

    def __init__(self, alias: str) -> None:
        super().__init__()
        self._alias = alias

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for file in super().list(prefix.replace(self._alias, "file://")):
            yield replace(file, path=file.path.replace("file://", self._alias))

    def stat(self, path: str) -> StoredFile | None:
        return super().stat(path.replace(self._alias, "file://"))

    def now_ms(self, folder: str) -> int:
        return super().now_ms(folder.replace(self._alias, "file://"))

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        return super().read(path.replace(self._alias, "file://"), most_bytes)


@pytest.mark.parametrize("alias", ["s3://", "viewfs://"])
def test_scheme_without_mapping_is_refused_and_with_it_matches(run: Run, lake: Lake, alias: str) -> None:
    target = lake.target()
    state = replace(target.state, location=target.state.location.replace("file://", alias))
    state = replace(state, metadata_location=state.metadata_location.replace("file://", alias))
    renamed = replace(target, state=state, others=())
    with pytest.raises(RefusedError, match="ICM-113"):
        run(renamed, store=Aliased(alias))
    same = Equivalences({"file": alias.removesuffix("://")})
    assert len(orphans_of(run(replace(renamed, same=same), store=Aliased(alias)))) == ORPHANS + 1


def test_live_file_that_is_not_listed_is_refused(run: Run, lake: Lake) -> None:
    next(p for p in lake.live if p.suffix == ".parquet").unlink()
    with pytest.raises(RefusedError, match=r"ICM-122 .* which is not in the listing"):
        run()


def test_live_file_that_the_listing_hides_is_refused(run: Run) -> None:
    class Forgetful(ShiftedStore):
        def list(self, prefix: str) -> Iterator[StoredFile]:
            return (f for f in super().list(prefix) if "0003.parquet" not in f.path)

    with pytest.raises(RefusedError, match=r"ICM-122 .* which is not in the listing"):
        run(store=Forgetful())


class Unlisted:
    """Referenced paths, none of them in the listing."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = paths

    def other_store(self) -> None:
        return None

    def unlisted(self) -> Iterator[str]:
        return iter(self._paths)


class WrittenAt(ShiftedStore):
    """A store whose files were all written at one time. It counts those that are looked up."""

    def __init__(self, modified_ms: int) -> None:
        super().__init__()
        self.modified_ms, self.looked_up = modified_ms, 0

    def stat(self, path: str) -> StoredFile | None:
        self.looked_up += 1
        return StoredFile(path, 1, self.modified_ms)


def check_unlisted(lake: Lake, store: ShiftedStore, *names: str) -> None:
    """Checks referenced files that a listing lacks which began at the time 5."""
    target = lake.target()
    paths: Any = Unlisted(f"{target.state.location}/{name}" for name in names)
    _check_reached(paths, target, store, 5)


def test_ten_thousand_unlisted_files_are_looked_up_and_one_more_is_refused(lake: Lake) -> None:
    store, names = WrittenAt(5), [f"data/{n}" for n in range(10_001)]
    check_unlisted(lake, store, *names[:-1])
    assert store.looked_up == 10_000
    with pytest.raises(RefusedError, match=r"ICM-122 .*/data/10000, which is not in the listing"):
        check_unlisted(lake, store, *names)
    assert store.looked_up == 20_000


def test_unlisted_file_from_before_the_listing_is_refused_unless_it_is_in_the_trash(lake: Lake) -> None:
    check_unlisted(lake, WrittenAt(5), "data/1.parquet")
    with pytest.raises(RefusedError, match=r"ICM-122 .*/data/1.parquet, which is not in the listing"):
        check_unlisted(lake, WrittenAt(4), "data/1.parquet")
    in_trash = f"{TRASH}/files/1/data/1.parquet"
    check_unlisted(lake, WrittenAt(4), in_trash)
    with pytest.raises(RefusedError, match=rf"ICM-122 .*/{in_trash}, which is not in the listing"):
        check_unlisted(lake, ShiftedStore(), in_trash)


def test_commit_after_the_listing_is_reached(run: Run, lake: Lake) -> None:
    """Its files are not listed, and its old files stop being orphans."""

    class Overtaken(ShiftedStore):
        done = False

        def list(self, prefix: str) -> Iterator[StoredFile]:
            yield from super().list(prefix)
            if not self.done:
                self.done = True
                commit(lake, "data/orphan-3.parquet", "data/new.parquet")

    found = orphans_of(run(store=Overtaken()))
    assert "orphan-2.parquet" in found
    assert "orphan-3.parquet" not in found


def commit(lake: Lake, *names: str) -> None:
    """One more snapshot of the table with these files, those that do not exist written now."""
    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, register
    from iceberg_maint_tests.support.removal.layouts import SCHEMA, UNPARTITIONED

    at = lake.folder / PLAIN.table_folder
    before = json.loads((at / "metadata" / "00009-last.metadata.json").read_text())
    table = TableFiles(
        at, SCHEMA, [UNPARTITIONED], snapshots=before["snapshots"], table_uuid=before["table-uuid"]
    )
    for name in names:
        if not (at / name).exists():
            (at / name).write_bytes(b"new")
    files = tuple(File(f"file://{at}/{n}") for n in names)
    number = len(table.snapshots) + 1
    table.commit(
        [ManifestFile(files, UNPARTITIONED, number, number)],
        snapshot_id=number,
        sequence_number=number,
        timestamp_ms=9_000 + number,
    )
    place = at / "metadata" / f"1000{number}.metadata.json"
    place.write_text(json.dumps(table.document()))
    register(lake.database, "db.t", place.as_uri())


def test_file_reached_elsewhere_by_its_name_stays(run: Run, lake: Lake) -> None:
    """A mount by which the same file has another path: its name is all that tells."""
    at = lake.folder / PLAIN.table_folder
    (lake.folder / "mount").mkdir()
    shutil.copy(at / "data" / "orphan-5.parquet", lake.folder / "mount" / "orphan-5.parquet")
    commit(lake, "../../../mount/orphan-5.parquet")
    found = run()
    assert "orphan-5.parquet" not in orphans_of(found)
    assert found.counts.kept[Kept.NAMED_ELSEWHERE] == 1


def test_path_of_the_metadata_that_is_relative_is_refused(run: Run, lake: Lake) -> None:
    target = lake.target()

    class Relative:
        def metadata_location(self) -> str:
            return target.state.metadata_location

        def paths(self) -> Iterator[str]:
            yield "data/1.parquet"

    with pytest.raises(RefusedError, match="ICM-113"):
        scan(Removal(target, POLICY, ShiftedStore(), Relative(), lake.folder, ShiftedStore().local_now_ms))


def test_listing_beyond_the_prefix_is_refused(run: Run) -> None:
    class Wide(ShiftedStore):
        def list(self, prefix: str) -> Iterator[StoredFile]:
            yield StoredFile(prefix + "_2/data/1.parquet", 1, 1)

    with pytest.raises(RefusedError, match="ICM-113"):
        run(store=Wide())


def test_refused_scan_leaves_nothing(run: Run, lake: Lake) -> None:
    before = stored(lake).keys()
    with pytest.raises(RefusedError):
        run(others=(LocationOwner("u", "2", (f"file://{lake.folder}",)),))
    next(p for p in lake.live if p.suffix == ".parquet").unlink()
    with pytest.raises(RefusedError):
        run()
    assert len(before - stored(lake).keys()) == 1
    assert stored(lake).keys() <= before


def test_prefixes_hold_none_within_another(lake: Lake) -> None:
    target = lake.target()
    at = target.state.location
    nested = replace(target, exclusive_prefixes=(f"{at}/data", f"file://{lake.folder}/x", at + "/"))
    assert nested.prefixes == (at, f"file://{lake.folder}/x")
    above = replace(target, exclusive_prefixes=(f"file://{lake.folder}",))
    assert above.prefixes == (f"file://{lake.folder}",)


def test_decoders_that_disagree_are_refused(run: Run, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our decoder leaves out a file that PyIceberg's finds."""
    monkeypatch.setattr(
        reachable_files, "read_live_entries", lossy(reachable_files.read_live_entries, "0007.parquet")
    )
    with pytest.raises(RefusedError, match=r"ICM-122 lake.db.t: two decoders .*0007.parquet"):
        run()


def test_decoders_are_compared_only_where_there_are_orphans(
    run: Run, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_input: object) -> object:
        raise EOFError("no such thing")

    monkeypatch.setattr(reachable_files, "read_manifest_list_again", fail)
    with pytest.raises(
        UnreadableTableError, match=r"ICM-101 lake.db.t: a second decoder cannot read manifests"
    ):
        run()
    for place in lake.orphans:
        place.unlink()
    assert run().counts.orphan_files == 0


def test_second_opinion_of_a_large_table_is_a_sample(lake: Lake) -> None:
    target = lake.target()
    walk = lake.walk(target)
    every = set(walk.paths())
    head = set(walk.second_opinion(10_000))
    assert head < every
    assert len([p for p in head if p.endswith(".parquet")]) == DATA_FILES
    assert len([p for p in walk.second_opinion(1) if p.endswith(".parquet")]) == DATA_FILES // 2


def test_second_opinion_is_asked_of_ten_thousand_files(lake: Lake) -> None:
    walk = SimpleNamespace(second_opinion=lambda most: (f"s3://b/t/{n}" for n in range(most)))
    removal: Any = SimpleNamespace(target=lake.target(), reachability=walk)

    def check(reached: int) -> None:
        paths: Any = SimpleNamespace(reaches={f"s3://b/t/{n}" for n in range(reached)}.__contains__)
        check_second_opinion(removal, paths)

    check(10_000)
    with pytest.raises(RefusedError, match=r"ICM-122 lake.db.t: .* does not find s3://b/t/9999\."):
        check(9_999)


def lossy(read: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A decoder that loses one file."""

    def lose(*arguments: Any) -> Any:
        entries = read(*arguments)
        return replace(entries, more=([p for p in entries.more[0] if not p.endswith(name)],))

    return lose
