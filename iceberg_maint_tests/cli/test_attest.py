"""`attest` on the lake in memory: which commits it takes, what it prints, how it exits."""

from __future__ import annotations

import re

from iceberg_maint.core.decisions.snapshot_retention import RetainerKind
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.verification import (
    Difference,
    DifferentRow,
    Evidence,
    Fingerprint,
    Side,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.assess import retention_of
from iceberg_maint.loop.attest import Extent, attest_table
from iceberg_maint_tests.cli.conftest import Lake
from iceberg_maint_tests.cli.test_contract import CONTRACT, keys_of
from iceberg_maint_tests.support.context import changed, spark_access
from iceberg_maint_tests.support.loop.verifier import SetVerifier

ROWS, OTHERS = Fingerprint(3, ((1, 2), (3, 4))), Fingerprint(3, ((1, 2), (3, 5)))


def verifier(lake: Lake, evidence: Evidence | None, error: RefusedError | None = None) -> SetVerifier:
    found = SetVerifier(evidence, error)
    lake.context = changed(lake.context, spark=spark_access(verifier=lambda: found))
    return found


def test_attest_of_equal_sides_exits_0_with_both(lake: Lake) -> None:
    lake("run", "db.sick")
    asked = verifier(lake, Evidence(Side(10, 1, ROWS), Side(1, 0, ROWS))).asked
    document = lake.json("attest", "db.sick")
    assert (document["status"], document["pending"], document["open"]) == ("ATTESTED", 0, [])
    (commit,) = document["commits"]
    assert (commit["status"], commit["stored"]) == ("ATTESTED", "NOT_COMPARABLE")
    assert commit["before"] == {
        "data_files": 10,
        "delete_files": 1,
        "rows": 3,
        "fingerprint": ROWS.text(),
    }
    assert (commit["snapshot"], commit["parent"]) == (asked[0].snapshot_id, asked[0].parent_id)
    contract = set(re.findall(r'"([a-z_]+)"', CONTRACT.read_text(encoding="utf-8")))
    assert keys_of(document) - contract == set()


def test_attest_reads_each_commit_once(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    asked = verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS))).asked
    commits = [c["snapshot"] for c in lake.json("attest", "db.sick")["commits"]]
    assert [c.snapshot_id for c in asked] == commits
    again = lake("attest", "db.sick")
    assert (again.exit_code, len(asked)) == (0, len(commits))
    assert "no commit to attest since the last attestation" in again.stdout


def test_attest_takes_the_snapshot_asked_for_and_moves_no_cursor(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    asked = verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS))).asked
    head = lake.catalog.content[TableId.parse("lake.db.sick")].state.snapshot
    assert head is not None
    document = lake.json("attest", "db.sick", "--snapshot", str(head.snapshot_id))
    assert ([c.snapshot_id for c in asked], document["attested_to"]) == ([head.snapshot_id], None)


def test_attest_of_different_rows_exits_1_with_rows_and_roll_back_until_accepted(lake: Lake) -> None:
    lake("run", "db.sick")
    row = DifferentRow('{"id":7}', "a.parquet", 1, is_lost=True)
    difference = Difference(1, 0, (row,))
    verifier(lake, Evidence(Side(10, 0, ROWS), Side(1, 0, OTHERS), difference=difference))
    result = lake("attest", "db.sick")
    assert result.exit_code == 1
    for text in ("RED", ROWS.text(), OTHERS.text(), 'lost: {"id":7} in a.parquet', "rollback_to_snapshot"):
        assert text in result.stdout
    assert "the rows: iceberg-maint attest lake.db.sick --snapshot 1002\n" in result.stdout
    assert "the end of the verdict: iceberg-maint attest lake.db.sick --accept 1002\n" in result.stdout
    failure = lake.json("tables", exit_code=1)["tables"][1]["failure"]
    assert (failure["standing"], failure["code"]) == ("failed", "ICM-185")
    document = lake.json("attest", "db.sick", exit_code=1)
    (snapshot,) = document["open"]
    assert (document["status"], document["commits"]) == ("RED", [])
    assert lake("attest", "db.sick", "--accept", "99").exit_code == 2
    assert lake("attest", "db.sick", "--accept", str(snapshot)).exit_code == 0
    assert lake.json("attest", "db.sick")["open"] == []
    assert lake.json("tables")["tables"][1]["failure"] is None


def test_red_commit_stays_red_and_keeps_its_parent_until_a_person_accepts(lake: Lake) -> None:
    lake("run", "db.sick")
    verifier(lake, Evidence(Side(10, 0, ROWS), Side(1, 0, OTHERS)))
    (snapshot,) = lake.json("attest", "db.sick", exit_code=1)["open"]
    weaker = lake("attest", "db.sick", "--snapshot", str(snapshot), "--level", "metadata")
    assert (weaker.exit_code, "CONSISTENT" in weaker.stdout) == (1, True)
    assert f"open: snapshot {snapshot}: RED" in weaker.stdout

    table = TableId.parse("lake.db.sick")

    def retained() -> list[tuple[str, str, int | None]]:
        state, now_ms = lake.context.catalogs.pin(table), lake.context.clock.now_ms()
        retention = retention_of(state, lake.context.policies.of(state), lake.context, now_ms)
        return [(r.kind, r.name, r.snapshot_id) for r in (*retention.retainers, *retention.lapsed)]

    head = lake.catalog.content[table].state.snapshot
    assert head is not None
    assert retained() == [(RetainerKind.ATTESTATION, str(snapshot), head.parent_id)]
    assert lake("attest", "db.sick", "--accept", str(snapshot)).exit_code == 0
    assert retained() == []


def test_attest_by_metadata_alone_is_consistent_and_starts_nothing(lake: Lake) -> None:
    lake("run", "db.sick")
    asked = verifier(lake, None).asked
    document = lake.json("attest", "db.sick", "--level", "metadata")
    (commit,) = document["commits"]
    assert (document["status"], commit["status"], asked) == ("CONSISTENT", "CONSISTENT", [])
    assert commit["detail"].endswith("its files were not read")


def test_commits_that_only_metadata_attested_are_proved_from_files_later(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    by_metadata = [c["snapshot"] for c in lake.json("attest", "db.sick", "--level", "metadata")["commits"]]
    asked = verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS))).asked
    limited = lake.json("attest", "db.sick", "--max-bytes", "30000")
    assert [c["status"] for c in limited["commits"]] == ["ATTESTED"]
    document = lake.json("attest", "db.sick")
    assert [c.snapshot_id for c in asked] == by_metadata
    assert (len(by_metadata), [c["status"] for c in document["commits"]]) == (2, ["ATTESTED"])
    assert lake.json("attest", "db.sick")["commits"] == []


def test_limit_of_commits_holds_for_those_that_only_metadata_attested(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    lake("attest", "db.sick", "--level", "metadata")
    verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS)))
    state = lake.catalog.pin(TableId.parse("lake.db.sick"))
    one = Extent(files=True, max_bytes=None, max_commits=1)
    done = [attest_table(state, lake.context, one) for _ in range(3)]
    assert [len(d.verdicts) for d in done] == [1, 1, 0]
    assert [(len(d.attestation.unread), d.attestation.pending) for d in done if d.attestation] == [
        (1, 0),
        (0, 0),
        (0, 0),
    ]


def test_attest_of_a_commit_above_the_limit_is_unprovable_and_a_later_one_waits(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS)))
    first = lake.json("attest", "db.sick", "--max-bytes", "100", exit_code=3)
    assert first["commits"][0]["detail"].endswith("and attest.max_bytes is 100")
    assert (len(first["commits"]), first["pending"]) == (1, 1)
    second = lake.json("attest", "db.sick", exit_code=3)
    assert [c["status"] for c in second["commits"]] == ["ATTESTED"]
    assert second["open"] == [first["commits"][0]["snapshot"]]


def test_attest_of_an_expired_snapshot_exits_3(lake: Lake) -> None:
    lake("run", "db.sick")
    verifier(lake, None)
    assert lake.json("attest", "db.sick", exit_code=3)["status"] == "UNPROVABLE"


def test_attest_of_a_table_without_maintenance_exits_0_and_starts_nothing(lake: Lake) -> None:
    document = lake.json("attest", "db.healthy")
    assert (document["status"], document["commits"]) == ("ATTESTED", [])


def test_attest_of_a_snapshot_without_a_claim_or_not_retained_exits_3(lake: Lake) -> None:
    head = lake.catalog.content[TableId.parse("lake.db.healthy")].state.snapshot
    assert head is not None
    append = lake.json("attest", "db.healthy", "--snapshot", str(head.snapshot_id), exit_code=3)
    assert append["commits"][0]["status"] == "NO_CLAIM"
    unknown = lake.json("attest", "db.healthy", "--snapshot", "5", exit_code=3)
    assert unknown["commits"][0]["detail"] == "snapshot 5 is not retained: it expired or never existed"


def test_attest_of_an_unknown_table_exits_2(lake: Lake) -> None:
    assert lake("attest", "db.nothing").exit_code == 2


def test_damaged_file_that_attest_met_is_shown_until_a_proof_succeeds(lake: Lake) -> None:
    lake("run", "db.sick")
    error = RefusedError("ICM-101", "file a.parquet has 1 byte; its manifest states 9.", "restore it.")

    verifier(lake, None, error)
    assert lake("attest", "db.sick").exit_code == 3
    row = lake.json("tables", exit_code=1)["tables"][1]
    assert (row["table"], row["status"], row["failure"]["message"]) == ("lake.db.sick", "failed", str(error))
    verifier(lake, Evidence(Side(10, 1, ROWS), Side(1, 0, ROWS)))
    (snapshot,) = lake.json("attest", "db.sick", exit_code=3)["open"]
    assert lake("attest", "db.sick", "--snapshot", str(snapshot)).exit_code == 0
    assert lake("attest", "db.sick").exit_code == 0
    assert lake.json("tables")["tables"][1]["failure"] is None
