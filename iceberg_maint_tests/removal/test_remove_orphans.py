"""The orphan scan as an operation: due, resumed, refused and told like any other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import guarded_properties
from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.core.model.ids import WHOLE_TABLE, TableId
from iceberg_maint.core.model.location import ApprovedLocations, LocationOwner
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.remove_orphans import Scope
from iceberg_maint.removal.store_requests import TRUSTED_MS, AskedLease
from iceberg_maint_tests.removal.test_scan import commit
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.catalog.table_files import TableFiles, register
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.removal.layouts import (
    DAY_MS,
    LAYOUTS,
    ORPHANS,
    SCHEMA,
    UNPARTITIONED,
    Lake,
    ShiftedStore,
)
from iceberg_maint_tests.support.removal.passes import DAILY, OPERATION, TABLE, Passes
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.slow

ALL = ORPHANS + 1
LAYOUTS_BY_NAME = {layout.name: layout for layout in LAYOUTS}
HOLD_MS = DAILY.delete_after_seconds * 1000 + 60_000


@pytest.fixture
def passes(tmp_path: Path) -> Passes:
    return Passes(LAYOUTS[0].build(tmp_path))


def later(passes: Passes, ahead_ms: int = HOLD_MS) -> Passes:
    return replace(passes, store=ShiftedStore(ahead_ms))


def section(**changes: object) -> Policy:
    return Policy(remove_orphan_files=replace(DAILY, **changes))  # type: ignore[arg-type]


def test_pass_marks_waits_and_sweeps_in_a_later_one(passes: Passes) -> None:
    first = passes.run()
    assert (first.outcome, first.reason) == (OutcomeStatus.IMPROVED, Reason.ORPHAN_FILES)
    [batch] = first.batches
    assert batch.counts is not None
    assert (batch.counts["orphan_files"], batch.counts["trashed_files"]) == (ALL, ALL)
    assert batch.counts["trashed_bytes"] == sum(map(len, passes.lake.orphans.values()))
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [], ALL)

    [retained] = batch.retained or ()
    assert (retained.files, retained.size_bytes) == (ALL, batch.counts["trashed_bytes"])
    assert retained.marked_ms is not None
    assert (len(retained.paths), set(retained.paths) <= {f"file://{p}" for p in passes.lake.orphans}) == (
        5,
        True,
    )

    assert passes.run().batches == ()  # not due again so soon
    early = later(passes, DAY_MS + 60_000).run()
    assert (early.outcome, passes.lake.trashed()) == (OutcomeStatus.NO_OP, ALL)

    [swept] = later(passes).run().batches
    assert swept.counts is not None
    assert (swept.outcome, swept.counts["swept_files"], swept.retained) == (OutcomeStatus.IMPROVED, ALL, ())
    assert (passes.lake.lost(), passes.lake.trashed()) == ([], 0)


def test_nothing_is_swept_while_snapshots_are_to_expire(passes: Passes) -> None:
    passes.run()
    expires = ExpireSnapshotsPolicy(max_snapshot_age_seconds=0, min_snapshots_to_keep=1)
    waits = replace(later(passes), policy=replace(passes.policy, expire_snapshots=expires))
    assert (waits.run().outcome, passes.lake.trashed()) == (OutcomeStatus.NO_OP, ALL)
    assert later(passes).run(force=True).outcome is OutcomeStatus.IMPROVED
    assert passes.lake.trashed() == 0


def test_what_was_swept_before_a_refusal_is_reported_with_it(passes: Passes) -> None:
    passes.run()
    next(p for p in passes.lake.live if p.suffix == ".parquet").unlink()
    outcome = later(passes).run()
    [batch] = outcome.batches
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert "ICM-122" in batch.message
    assert batch.counts is not None
    assert (batch.counts["swept_files"], batch.counts["trashed_files"]) == (ALL, 0)


def test_refusal_that_did_nothing_has_no_counts_and_backs_off(passes: Passes) -> None:
    nested = passes.lake.folder / "warehouse/db/t/nested/1.metadata.json"
    nested.parent.mkdir()
    nested.write_text('{"table-uuid": "another"}')
    outcome = passes.run()
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert outcome.batches[0].counts == {}
    assert passes.run().reason is Reason.BACK_OFF
    assert passes.lake.trashed() == 0


def test_failure_halfway_reports_what_was_moved(passes: Passes) -> None:
    class Failing(ShiftedStore):
        moved = 0

        def move(self, source: str, target: str) -> None:
            self.moved += 1
            if self.moved > 7:
                raise OSError("the network is down")
            super().move(source, target)

    outcome = replace(passes, store=Failing()).run()
    [batch] = outcome.batches
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.ERROR)
    assert batch.message == "OSError: the network is down"
    assert batch.counts is not None
    assert batch.counts["trashed_files"] == passes.lake.trashed() == 7
    assert later(passes, DAY_MS).run().outcome is OutcomeStatus.IMPROVED
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [], ALL)


def test_abnormal_share_waits_for_approval_of_these_very_files(passes: Passes) -> None:
    strict = replace(passes, policy=section(max_orphan_ratio=0.01))
    outcome = strict.run()
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.APPROVAL_REQUIRED)
    digest = outcome.batches[0].message.rpartition(" ")[2]
    [waiting] = outcome.batches[0].retained or ()
    assert (waiting.mark_id, waiting.marked_ms, waiting.files) == (digest, None, ALL)
    passes.lake.plant(passes.lake.orphans, passes.lake.folder / "warehouse/db/t/data/new", b"x")
    approved = replace(strict, scope=Scope(approved=digest), store=ShiftedStore(8 * DAY_MS))
    assert approved.run().batches[0].counts["trashed_files"] == ALL
    # What has come of age since was not approved.
    assert [p.name for p in passes.lake.remaining()] == ["new"]


@pytest.mark.parametrize("approved", ["", "no digest", "-1-abc", "0-" + 64 * "0", "99999999999999999999-x"])
def test_text_that_approves_nothing_moves_nothing(passes: Passes, approved: str) -> None:
    outcome = replace(passes, scope=Scope(approved=approved)).run()
    assert (outcome.reason, passes.lake.trashed()) == (Reason.APPROVAL_REQUIRED, 0)


def test_dropped_and_recreated_table_is_left_alone(passes: Passes) -> None:
    def recreated(_state: object) -> object:
        raise RefusedError("ICM-129", "another table.", "none.")

    outcome = replace(passes, around={"reachability": recreated}).run()
    assert (outcome.outcome, passes.lake.trashed()) == (OutcomeStatus.UNSUPPORTED, 0)


def test_claims_are_read_again_only_where_a_pointer_moved(passes: Passes) -> None:
    lake = passes.lake
    LAYOUTS_BY_NAME["neighbours"].more(lake, lake.folder / "warehouse/db/t", {})
    catalog, read = lake.catalog, []
    real = catalog.metadata_file
    catalog.metadata_file = lambda name: (read.append(str(name)), real(name))[1]  # type: ignore[method-assign, func-returns-value]
    owners = FleetLocationOwners({"lake": catalog}, ClaimMemory())
    assert {c.table for c in owners.others(TABLE)} == {f"lake.db.{n}" for n in ("t_2", "t2", "t_old", "s")}
    assert len(read) == 4
    assert len(owners.others(TABLE)) == len(read) == 4
    moved = next((lake.folder / "warehouse/db/s/metadata").glob("*.metadata.json"))
    moved = moved.rename(moved.with_name("moved.metadata.json"))
    register(lake.database, "db.s", f"file://{moved}")
    assert len(owners.others(TableId.parse("lake.db.t_2"))) == 4
    assert read[4:] == ["lake.db.s", "lake.db.t"]


@pytest.fixture
def neighbours(passes: Passes) -> Lake:
    LAYOUTS_BY_NAME["neighbours"].more(passes.lake, passes.lake.folder / "warehouse/db/t", {})
    return passes.lake


def moved_pointer(lake: Lake, folder: str, content: str) -> None:
    """Gives the neighbour `s` a metadata file in another folder, or with a content that cannot be read."""
    path = lake.folder / folder / "next.metadata.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    register(lake.database, "db.s", path.as_uri())


def test_neighbour_without_a_readable_metadata_file_stops_the_pass(passes: Passes, neighbours: Lake) -> None:
    """Its metadata may be elsewhere than its data."""
    next((neighbours.folder / "warehouse/db/s/metadata").glob("*.metadata.json")).write_text("{")
    outcome = passes.run()
    assert (outcome.outcome, neighbours.trashed()) == (OutcomeStatus.UNSUPPORTED, 0)
    assert "ICM-111 lake.db.s cannot be read" in outcome.batches[0].message


def test_neighbour_whose_metadata_files_are_gone_stops_passes_over_its_location_only(
    passes: Passes, neighbours: Lake
) -> None:
    next((neighbours.folder / "warehouse/db/s/metadata").glob("*.metadata.json")).unlink()
    inside = neighbours.folder / "warehouse/db/t/s/metadata/1.metadata.json"
    register(neighbours.database, "db.s", inside.as_uri())
    outcome = passes.run()
    assert (outcome.outcome, neighbours.trashed()) == (OutcomeStatus.UNSUPPORTED, 0)
    assert f"overlaps lake.db.s (file://{neighbours.folder}/warehouse/db/t/s)" in outcome.batches[0].message
    register(
        neighbours.database, "db.s", (neighbours.folder / "warehouse/db/s/metadata/1.metadata.json").as_uri()
    )
    assert (passes.run(force=True).outcome, neighbours.trashed()) == (OutcomeStatus.IMPROVED, ALL)


def test_neighbour_whose_metadata_folder_has_another_name_stops_the_pass(
    passes: Passes, neighbours: Lake
) -> None:
    """Its location cannot be told from its pointer."""
    register(neighbours.database, "db.s", (neighbours.folder / "elsewhere/1.metadata.json").as_uri())
    outcome = passes.run()
    assert (outcome.outcome, neighbours.trashed()) == (OutcomeStatus.UNSUPPORTED, 0)
    assert "ICM-111 lake.db.s cannot be read" in outcome.batches[0].message


def test_neighbour_that_was_never_read_has_the_claim_of_its_earlier_metadata_file(neighbours: Lake) -> None:
    readable = {
        c.table: c for c in FleetLocationOwners({"lake": neighbours.catalog}, ClaimMemory()).others(TABLE)
    }
    [earlier] = (neighbours.folder / "warehouse/db/s/metadata").glob("*.metadata.json")
    moved_pointer(neighbours, "warehouse/db/s/metadata", "{")
    owners = {
        c.table: c for c in FleetLocationOwners({"lake": neighbours.catalog}, ClaimMemory()).others(TABLE)
    }
    until_ms = json.loads(earlier.read_text())["last-updated-ms"]
    assert owners == readable | {"lake.db.s": replace(readable["lake.db.s"], current_until_ms=until_ms)}


def test_neighbour_that_was_never_read_has_the_approved_locations_of_its_catalog(neighbours: Lake) -> None:
    moved_pointer(neighbours, "elsewhere/metadata", "{")
    approved = (f"file://{neighbours.folder}/warehouse", f"file://{neighbours.folder}/elsewhere")
    properties = {"type": "sql", "uri": f"sqlite:///{neighbours.database}"}
    catalog = PyIcebergCatalog("lake", guarded_properties(properties, ApprovedLocations(approved)))
    [of_s] = (
        c
        for c in FleetLocationOwners({"lake": catalog}, ClaimMemory()).others(TABLE)
        if c.table == "lake.db.s"
    )
    assert of_s == LocationOwner("lake.db.s", "", approved)


def test_claims_in_the_ledger_are_read_once_by_all_processes(neighbours: Lake) -> None:
    ledger, catalog, read = memory_ledger(), neighbours.catalog, []
    real = catalog.metadata_file
    catalog.metadata_file = lambda name: (read.append(str(name)), real(name))[1]  # type: ignore[method-assign, func-returns-value]
    first, second = (FleetLocationOwners({"lake": catalog}, ledger.registry).others(TABLE) for _ in range(2))
    assert sorted(first, key=str) == sorted(second, key=str)
    assert (len(first), len(read)) == (4, 4)
    catalog.tables = lambda: (TABLE,)  # type: ignore[method-assign]
    assert FleetLocationOwners({"lake": catalog}, ledger.registry).others(TABLE) == ()
    assert ledger.registry.location_owners("lake") == {}  # of dropped tables


@pytest.mark.parametrize("content", ["{", "[" * 100_000], ids=["cut off", "too deep"])
def test_unreadable_neighbour_has_its_last_claim_and_the_time_of_it(neighbours: Lake, content: str) -> None:
    ledger = memory_ledger()
    before_ms = ledger.registry.now_ms()
    readable = {
        c.table: c for c in FleetLocationOwners({"lake": neighbours.catalog}, ledger.registry).others(TABLE)
    }
    after_ms = ledger.registry.now_ms()
    moved_pointer(neighbours, "warehouse/db/s/metadata", content)
    for _ in range(2):
        owners = {
            c.table: c
            for c in FleetLocationOwners({"lake": neighbours.catalog}, ledger.registry).others(TABLE)
        }
        until_ms = owners["lake.db.s"].current_until_ms
        assert until_ms is not None
        assert before_ms <= until_ms <= after_ms
        assert {k: replace(c, current_until_ms=None) for k, c in owners.items()} == readable
        assert {c.table for c in owners.values() if c.current_until_ms is not None} == {"lake.db.s"}


def test_unreadable_neighbour_that_moved_since_its_last_claim_stops_the_pass(neighbours: Lake) -> None:
    ledger = memory_ledger()
    FleetLocationOwners({"lake": neighbours.catalog}, ledger.registry).others(TABLE)
    moved_pointer(neighbours, "elsewhere/metadata", "{")
    with pytest.raises(RefusedError, match=r"ICM-111 lake\.db\.s cannot be read"):
        FleetLocationOwners({"lake": neighbours.catalog}, ledger.registry).others(TABLE)


def test_neighbour_that_is_listed_and_not_found_has_its_last_claim(tmp_path: Path) -> None:
    database, ledger = tmp_path / "catalog.db", memory_ledger()
    table = TableFiles(tmp_path / "u", SCHEMA, [UNPARTITIONED])
    table.commit([], snapshot_id=1, sequence_number=1, timestamp_ms=1_000)
    table.register(database, "db.u")
    server = RestServer(database)
    with serving(server) as url:

        def owners() -> tuple[LocationOwner, ...]:
            catalog = PyIcebergCatalog("lake", {"type": "rest", "uri": url})
            return FleetLocationOwners({"lake": catalog}, ledger.registry).others(TABLE)

        [before] = owners()
        server.missing = frozenset({"u"})
        [now] = owners()
    assert now.current_until_ms is not None
    assert replace(now, current_until_ms=None) == before


@pytest.mark.parametrize(("days_ago", "trashed"), [(1, ALL), (400, 0)])
def test_files_newer_than_the_last_claim_of_an_unreadable_table_stay(
    passes: Passes, days_ago: int, trashed: int
) -> None:
    last = LocationOwner(
        "lake.db.u", "u", ("file:///elsewhere",), time.time_ns() // 1_000_000 - days_ago * DAY_MS
    )
    replace(passes, around={"others": lambda _table: (last,)}).run()
    assert passes.lake.trashed() == trashed


@pytest.mark.parametrize("format_version", [1, 2])
@pytest.mark.parametrize("kind", ["manifest list", "manifest", "metadata log", "statistics"])
def test_metadata_of_another_table_that_stayed_below_ours_stops_the_pass(
    passes: Passes, kind: str, format_version: int
) -> None:
    """It was written there before the other table, or its `write.metadata.path`, went elsewhere."""
    lake = passes.lake
    other = TableFiles(lake.folder / "elsewhere/u", SCHEMA, [UNPARTITIONED], format_version)
    other.commit([], snapshot_id=1, sequence_number=1, timestamp_ms=1_000)
    document = other.document()
    path = f"file://{lake.folder}/warehouse/db/t/orphan-3"
    if kind == "manifest list":
        document["snapshots"][0]["manifest-list"] = path
    elif kind == "manifest":
        document["snapshots"] = [{"snapshot-id": 1, "timestamp-ms": 1_000, "manifests": [path]}]
    elif kind == "metadata log":
        document["metadata-log"] = [{"timestamp-ms": 1_000, "metadata-file": path}]
    else:
        document["statistics"] = [{"snapshot-id": 1, "statistics-path": path}]
    place = lake.folder / "elsewhere/u/metadata/1.metadata.json"
    place.write_text(json.dumps(document))
    register(lake.database, "db.u", place.as_uri())
    [batch] = passes.run().batches
    assert batch.message.startswith("ICM-111 lake.db.t (")
    assert "overlaps lake.db.u" in batch.message
    assert lake.trashed() == 0


class Interrupting(ShiftedStore):
    """Stops the program before the n-th change of a file."""

    def __init__(self, at: int, ahead_ms: int = 0) -> None:
        super().__init__(ahead_ms)
        self._left = at

    def _step(self, path: str) -> None:
        if TRASH in path:
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        self._step(path)
        super().create(path, lines)

    def move(self, source: str, target: str) -> None:
        self._step(target)
        super().move(source, target)

    def delete(self, path: str) -> None:
        self._step(path)
        super().delete(path)


@pytest.mark.parametrize("at", [0, 1, 11])
def test_interrupted_pass_is_made_good_by_the_next(passes: Passes, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        replace(passes, store=Interrupting(at)).run()
    assert passes.lake.trashed() == max(0, at - 1)
    # Stopped on purpose: no crash that would hold later passes back, and nothing left to settle.
    uuid = passes.lake.catalog.pin(TABLE).uuid
    past = passes.ledger.health.history(uuid, str(TABLE), OPERATION).of(WHOLE_TABLE)
    assert (past.crashes, past.not_before_ms) == (0, None)
    assert passes.ledger.work.open_attempts(uuid) == ()
    assert replace(passes, store=ShiftedStore(DAY_MS)).run().outcome is OutcomeStatus.IMPROVED
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [], ALL)


def test_trash_that_cannot_be_read_is_not_reported_as_empty(passes: Passes) -> None:
    passes.run()
    [mark] = passes.lake.folder.rglob(f"{TRASH}/marks/*.jsonl")

    class Tearing(ShiftedStore):
        def list(self, prefix: str) -> Iterator[StoredFile]:
            if TRASH not in prefix:
                mark.write_text("torn")
            return super().list(prefix)

    again = replace(passes, store=Tearing(DAY_MS + 60_000), scope=Scope(sweeps=False))
    [batch] = again.run().batches
    assert (batch.outcome, batch.retained) == (OutcomeStatus.NO_OP, None)
    assert passes.lake.trashed() == ALL


def committed_late(passes: Passes) -> Path:
    """The place of a file that its writer commits while it is in the trash."""
    place: Path = passes.lake.folder / "warehouse/db/t/data/orphan-3.parquet"
    commit(passes.lake, "data/orphan-3.parquet")
    place.unlink()
    return place


@pytest.mark.parametrize("scope", [Scope(), Scope(sweeps=False), Scope(marks=False)])
def test_file_committed_after_its_pass_is_back_after_the_next_whatever_the_hold(
    passes: Passes, scope: Scope
) -> None:
    passes.run()
    place = committed_late(passes)
    early = replace(later(passes, DAY_MS + 60_000), scope=scope).run(force=True)
    assert early.outcome is OutcomeStatus.NO_OP
    assert place.read_bytes() == passes.lake.orphans[place]
    assert later(passes).run().outcome is OutcomeStatus.IMPROVED
    assert (passes.lake.lost(), passes.lake.remaining(), passes.lake.trashed()) == ([], [place], 0)


def test_file_committed_while_a_pass_dies_is_back_after_the_next(passes: Passes) -> None:
    """Killed between the move of a file that its writer commits meanwhile, and putting it back."""

    class Dying(ShiftedStore):
        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            if source.endswith("orphan-3.parquet"):
                committed_late(passes)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(passes, store=Dying()).run()
    moved = passes.lake.trashed()
    assert later(passes, DAY_MS).run().outcome is OutcomeStatus.IMPROVED
    assert [p.name for p in passes.lake.remaining()] == ["orphan-3.parquet"]
    assert (passes.lake.lost(), passes.lake.trashed(), moved > 0) == ([], ALL - 1, True)


def test_file_put_back_is_reported_before_what_refuses_the_pass(
    passes: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    passes.run()
    place = committed_late(passes)
    nested = passes.lake.folder / "warehouse/db/t/nested/1.metadata.json"
    nested.parent.mkdir()
    nested.write_text('{"table-uuid": "another"}')
    [batch] = later(passes, DAY_MS + 60_000).run().batches
    assert (batch.outcome, batch.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    assert place.exists()
    assert (
        "lake.db.t: restored files from the trash that were committed after they were moved there: 1"
        in caplog.text
    )


@pytest.mark.parametrize("stopped_ms", [60_000, -60_000])
def test_pass_that_was_stopped_asks_for_its_lease_before_it_goes_on(passes: Passes, stopped_ms: int) -> None:
    """Another has the table by then, and what was an orphan may be none any more."""

    class Stopping(ShiftedStore):
        moved = 0

        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            self.moved += 1
            if self.moved == 7:
                passes.expire_leases()
                ahead_ms.append(stopped_ms)

    ahead_ms: list[int] = []
    store = Stopping()
    started_ms = store.local_now_ms()
    # The machine's clock stands still but for the stop.
    passes.around["now_ms"] = lambda: started_ms + sum(ahead_ms)
    outcome = replace(passes, store=store).run()
    assert outcome.reason is Reason.LEASE_HELD
    assert passes.lake.trashed() == 7


def test_lease_is_asked_for_once_a_moment() -> None:
    asked: list[int] = []
    now_ms = [1000]

    def holds() -> bool:
        asked.append(now_ms[0])
        return now_ms[0] < 1200

    lease = AskedLease(holds, lambda: now_ms[0])
    told = []
    for ms in (1000, 1001, 1000 + TRUSTED_MS - 1, 1000 + TRUSTED_MS, 1100, 1050, 1060, 1200, 1201):
        now_ms[0] = ms
        told.append(lease())
    assert asked == [1000, 1100, 1050, 1200, 1201]
    assert told == [True] * 7 + [False] * 2


def test_pass_that_is_stopped_while_it_asks_for_its_lease_asks_again() -> None:
    now_ms = [0]
    asked: list[int] = []

    def holds() -> bool:
        asked.append(now_ms[0])
        now_ms[0] += 60_000
        return True

    lease = AskedLease(holds, lambda: now_ms[0])
    assert [lease(), lease()] == [True, True]
    assert asked == [0, 60_000]
