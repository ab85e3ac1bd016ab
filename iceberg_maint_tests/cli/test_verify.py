"""`verify` on the lake in memory: which commit it takes, what it prints, how it exits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from iceberg_maint.core.outcomes.verification import (
    Evidence,
    Fingerprint,
    MaintenanceCommit,
    Side,
    Verification,
    judge_commit,
    unprovable,
)
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.cli.conftest import Lake
from iceberg_maint_tests.cli.test_contract import CONTRACT, keys_of
from iceberg_maint_tests.support.context import changed, spark_access

ROWS, OTHERS = Fingerprint(3, ((1, 2), (3, 4))), Fingerprint(3, ((1, 2), (3, 5)))


@dataclass
class SetVerifier:
    """Says what it was told to, and keeps what it was asked."""

    evidence: Evidence | None
    asked: list[MaintenanceCommit] = field(default_factory=list)

    def verify(self, commit: MaintenanceCommit) -> Verification:
        self.asked.append(commit)
        if self.evidence is None:
            return unprovable(commit, "snapshot 7 has been expired just now")
        return judge_commit(commit, self.evidence)


def verifier(lake: Lake, evidence: Evidence | None) -> SetVerifier:
    found = SetVerifier(evidence)
    lake.context = changed(lake.context, spark=spark_access(verifier=lambda: found))
    return found


def test_verify_of_equal_sides_exits_0_with_both(lake: Lake) -> None:
    lake("run", "db.sick")
    asked = verifier(lake, Evidence(Side(10, 1, ROWS), Side(1, 0, ROWS))).asked
    document = lake.json("verify", "db.sick")
    assert (document["status"], document["stored"]) == ("PROVED", "NOT_COMPARABLE")
    assert document["before"] == {
        "data_files": 10,
        "delete_files": 1,
        "rows": 3,
        "fingerprint": ROWS.text(),
    }
    assert (document["snapshot"], document["parent"]) == (asked[0].snapshot_id, asked[0].parent_id)
    contract = set(re.findall(r'"([a-z_]+)"', CONTRACT.read_text(encoding="utf-8")))
    assert keys_of(document) - contract == set()


def test_verify_takes_the_snapshot_asked_for(lake: Lake) -> None:
    lake("run", "db.sick", "--set", "windows.max_partitions_per_batch=1")
    asked = verifier(lake, Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS))).asked
    newest = lake.json("verify", "db.sick")["snapshot"]
    lake.json("verify", "db.sick", "--snapshot", str(newest - 1))
    assert [c.snapshot_id for c in asked] == [newest, newest - 1]


def test_verify_of_different_rows_exits_1_and_shows_both(lake: Lake) -> None:
    lake("run", "db.sick")
    verifier(lake, Evidence(Side(10, 0, ROWS), Side(1, 0, OTHERS)))
    result = lake("verify", "db.sick")
    assert result.exit_code == 1
    assert "DIFFERENT" in result.stdout
    assert ROWS.text() in result.stdout
    assert OTHERS.text() in result.stdout


def test_verify_of_an_expired_snapshot_exits_3(lake: Lake) -> None:
    lake("run", "db.sick")
    verifier(lake, None)
    assert lake.json("verify", "db.sick", exit_code=3)["status"] == "UNPROVABLE"


def test_verify_of_a_table_never_maintained_exits_3_and_starts_nothing(lake: Lake) -> None:
    document = lake.json("verify", "db.healthy", exit_code=3)
    assert (document["status"], document["before"], document["stored"]) == ("NOT_OURS", None, None)


def test_verify_of_an_unknown_table_exits_2(lake: Lake) -> None:
    assert lake("verify", "db.nothing").exit_code == 2


def test_damaged_file_that_verify_met_is_shown_until_a_proof_succeeds(lake: Lake) -> None:
    lake("run", "db.sick")
    error = RefusedError("ICM-101", "file a.parquet has 1 byte; its manifest states 9.", "restore it.")

    class Damaged:
        def verify(self, commit: MaintenanceCommit) -> Verification:
            raise error

    lake.context = changed(lake.context, spark=spark_access(verifier=Damaged))
    assert lake("verify", "db.sick").exit_code == 3
    row = lake.json("tables", exit_code=1)["tables"][1]
    assert (row["table"], row["status"], row["failure"]["message"]) == ("lake.db.sick", "failed", str(error))
    verifier(lake, Evidence(Side(10, 1, ROWS), Side(1, 0, ROWS)))
    assert lake("verify", "db.sick").exit_code == 0
    assert lake.json("tables")["tables"][1]["failure"] is None
