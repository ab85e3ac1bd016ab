"""What people read: every screen at 80 columns, the worst first, no word broken and no name cut."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from iceberg_maint.cli import COMMANDS
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.report.fleet_page import Prices, fleet_page
from iceberg_maint.report.report_page import FleetReport, failures_of, report_document
from iceberg_maint.report.verdicts import Summary
from iceberg_maint_tests.cli.conftest import FAILED, UNKNOWN, Lake, lake_of, table_of
from iceberg_maint_tests.support.context import changed

pytestmark = [pytest.mark.seconds, pytest.mark.usefixtures("narrow")]
REWRITE = ("--operation", "rewrite_data_files")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_tables_are_the_worst_first_below_a_summary(lake: Lake) -> None:
    lake.catalog.put(table_of("lake.db.held", {"1": 9}))
    uuid = next(t for n, t in lake.catalog.content.items() if n.name == "held").state.uuid
    history = PartitionHistory(ineffective=4, quarantined=True, reason="proof unequal")
    lake.context.ledger.health.set_partition_history(
        uuid, Operation.REWRITE_DATA_FILES, {PartitionKey("day=1"): history}
    )
    assert lake("tables").stdout.splitlines() == [
        "3 tables: 1 healthy, 1 due, 0 waiting, 1 blocked; backlog 26.4 KiB, unknown time",
        "",
        "table       status    to do   backlog  time  why                           small",
        "db.held     blocked  1 of 1   8.8 KiB     ?  rewrite_data_files: proof         9",
        "                                             unequal",
        "db.sick     due      2 of 3  17.6 KiB     ?  small_files                      20",
        "db.healthy  healthy  0 of 1                  healthy                           2",
        "not shown at this width: files",
    ]
    assert lake.json("tables", exit_code=1)["summary"] == {
        "tables": 3,
        "healthy": 1,
        "due": 1,
        "waiting": 0,
        "blocked": 1,
        "running": 0,
        "off": 0,
        "failed": 0,
        "backlog_bytes": 27_000,
        "estimate_seconds": None,
    }


@pytest.mark.parametrize("command", ["tables", "report"])
@pytest.mark.parametrize(
    ("fault", "line", "exit_code"),
    [
        (ZeroDivisionError("by zero"), "ICM-181 unexpected ZeroDivisionError: by zero. ", 1),
        (ConfigurationError("ICM-100", "maintenance.mode is 'off'.", "act."), "ICM-100 maintenance.mode ", 2),
    ],
)
def test_fault_of_one_table_is_its_row_and_hides_no_other(
    lake: Lake, command: str, fault: Exception, line: str, exit_code: int
) -> None:
    lake("observe")
    policy_for = lake.context.policies.of_table

    def of_table(table: TableId, properties: Mapping[str, str]) -> Policy:
        if table.name == "healthy":
            raise fault
        return policy_for(table, properties)

    lake.context = changed(lake.context, policy_for=of_table)
    shown = lake(command)
    assert shown.exit_code == (exit_code if command == "tables" else 0)
    assert f"db.healthy: {line}" in " ".join(shown.output.split())
    rows = [text.split()[:2] for text in shown.stdout.splitlines() if text.startswith("db.")]
    assert rows == [["db.healthy", "failed"], ["db.sick", "due"]]
    entries = {
        t["table"]: t.get("error", {}).get("code")
        for t in json.loads(lake(command, "--json").stdout)["tables"]
    }
    assert entries == {"lake.db.healthy": line[:7], "lake.db.sick": None}


def test_table_in_mode_advise_waits_and_says_what_a_run_would_make(lake: Lake) -> None:
    lake.configure("tables: {db.sick: {mode: advise}}\n")
    lines = lake("tables").stdout.splitlines()
    assert re.match(r"db\.sick +waiting +2 of 3 +17\.6 KiB +\? +mode: advise: 1 batch would +20$", lines[3])
    assert lines[4].strip() == "make 2 files of 18"


def test_why_is_one_page_and_all_shows_the_rest(lake: Lake) -> None:
    lake.configure("defaults: {max_run_seconds: 7}\n")
    page = lake("why", "db.sick").stdout.splitlines()
    assert len(page) <= 24
    assert page[0] == "lake.db.sick: Unhealthy: 2 of 3 partitions are due (enough small files to gain"
    text = "\n".join(page)
    assert "max_run_seconds: 7  (from defaults)" in text
    assert re.search(r"\d+ policy keys have their built-in value; --all shows them", text)
    assert "threshold of small_files: rewrite_data_files.min_input_files (built-in)" in text
    assert "retry.commit_tries" not in text
    assert re.search(r"^day=1 +due +small_files +10 +≥ 5$", text, re.MULTILINE)
    everything = lake("why", "db.sick", "--all").stdout
    assert "retry.commit_tries" in everything
    assert "rewrite_data_files.max_files" in everything


def test_why_of_a_healthy_table_shows_what_is_closest_to_a_threshold(lake: Lake) -> None:
    text = lake("why", "db.healthy").stdout
    assert re.search(
        r"closest to a threshold:\npartition +status.*\nday=1 +healthy +healthy +small_files +2 +≥ 5", text
    )


def test_why_of_healthy_data_names_the_housekeeping_that_is_due(lake: Lake) -> None:
    lines = lake("why", "db.healthy").stdout.splitlines()
    assert lines[:3] == [
        "lake.db.healthy: The data is healthy: no threshold is crossed. Housekeeping is",
        "due: remove_orphan_files.",
        "status: healthy; next run: RUN remove_orphan_files",
    ]
    without = lake("why", "db.healthy", "--set", "remove_orphan_files.enabled=false")
    assert without.stdout.splitlines()[:2] == [
        "lake.db.healthy: Healthy: no threshold is crossed.",
        "status: healthy; next run: SKIP healthy",
    ]


def test_why_of_one_partition_shows_every_metric(lake: Lake) -> None:
    text = lake("why", "db.sick", "--partition", "day=1").stdout
    assert "applicable_equality_delete_files" in text
    assert "dangling_position_delete_files" in text


def test_plan_is_the_table_before_and_after(lake: Lake) -> None:
    lines = lake("plan", "db.sick").stdout.splitlines()
    assert re.sub(r"\d+(?=; also)", "S", " ".join(lines[:2])) == (
        "lake.db.sick: 1 batch, 18 files with 17.6 KiB to read, at snapshot S; also remove_orphan_files"
    )
    before_after = [line.split() for line in lines if line.startswith(("data files", "snapshots"))]
    assert before_after == [["data", "files", "20", "4"], ["snapshots", "1", "2"]]
    assert any(
        re.search(r"rewrite_data_files +day=1, day=2 +small_files +18 → 2 +17.6 KiB$", line) for line in lines
    )
    document = lake.json("plan", "db.sick")
    assert document["before"] == {"data_files": 20, "delete_files": 0, "snapshots": 1}
    assert document["after"] == {"data_files": 4, "delete_files": 0, "snapshots": 2}


def test_plan_names_what_is_due_and_not_planned(lake: Lake) -> None:
    text = lake("plan", "db.sick", "--set", "windows.max_partitions_per_run=1").stdout
    assert re.search(r"not in this plan:\n.*\nday=2 +waiting +left for a later run", text)


def test_history_says_what_was_done_by_whom_and_whether_it_is_proved(lake: Lake) -> None:
    lake("run", "db.sick")
    lines = lake("history", "db.sick").stdout.splitlines()
    assert lines[0].endswith("remove_orphan_files: NO_OP orphan_files")
    rewrite = next(n for n, line in enumerate(lines) if "rewrite_data_files" in line)
    assert lines[rewrite + 1].startswith("  18 → 2 files, 17.6 KiB → 17.6 KiB; proof: 1 of 1 equal; ")
    assert re.match(r"  run cli-\S+, command line, \S+@\S+$", " ".join(lines[rewrite + 2 :][:1]))


def test_report_lists_failures_with_their_message_and_run(lake: Lake) -> None:
    lake.engine.results = [FAILED]
    lake("run", "db.sick", *REWRITE)
    text = lake("report").stdout
    words = " ".join(text.split())
    assert words.startswith(
        "1 table: 0 healthy, 0 due, 0 waiting, 0 blocked, 1 failed; backlog 17.6 KiB, unknown time (from stored health)"
    )
    assert "1 failure, newest first:" in words
    assert "db.sick rewrite_data_files FAILED error: the disk is full (run cli-" in words
    (failure,) = lake.json("report")["failures"]
    assert (failure["reason"], failure["message"]) == ("error", "the disk is full")


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_why_names_the_error_of_the_last_run(lake: Lake, options: tuple[str, ...]) -> None:
    lake("run", "db.sick", *REWRITE)
    assert "its error" not in lake("why", "db.sick", *options).stdout
    lake.engine.results = [FAILED]
    lake("run", "db.sick", "--force", *REWRITE)
    lines = lake("why", "db.sick", *options).stdout.splitlines()
    assert [line for line in lines if "its error" in line] == ["its error: the disk is full"]


def test_page_of_the_report_has_the_message_of_the_last_batch_as_the_screen_does(lake: Lake) -> None:
    lake.engine.results = [FAILED]
    lake("run", "db.sick", *REWRITE)
    (record,) = failures_of(lake.context.ledger.records.newest("lake.db.sick", 10))
    (batch,) = record.outcome.batches
    batches = (replace(batch, message="first"), replace(batch, message="last"))
    outcome = replace(record.outcome, message="", batches=batches)
    report = FleetReport((), {}, Summary(0, {}, 0, None), (replace(record, outcome=outcome),))
    (failures,) = (s for s in fleet_page(report, (), Prices(), 0).sections if s.heading == "Failures")
    assert [row[-1] for row in failures.rows] == ["last"]
    assert [f["message"] for f in report_document(report)["failures"]] == ["last"]


@pytest.mark.parametrize(("worked_ms", "time"), [(20_000, "≥ 20 s"), (0, "unknown")])
def test_history_of_a_crashed_run_has_the_least_time_that_it_worked(
    lake: Lake, worked_ms: int, time: str
) -> None:
    lake("run", "db.sick", *REWRITE)
    (record,) = lake.context.ledger.records.newest("lake.db.sick", 10)
    outcome = replace(record.outcome, outcome=OutcomeStatus.FAILED, reason=Reason.CRASHED)
    ended_ms = record.started_ms + worked_ms
    crashed = replace(
        record, record_id="crashed", ended_ms=ended_ms, outcome=outcome, policy_digest="", run_id="another"
    )
    lake.context.ledger.records.append(crashed)
    text = lake("history", "db.sick", "--limit", "1").stdout
    assert ("FAILED crashed" in text, f"equal; {time}\n" in text) == (True, True)


def test_proof_of_a_run_and_of_a_table_is_the_same_certificate(lake: Lake) -> None:
    run_id = lake.json("run", "db.sick", *REWRITE)["run_id"]
    lake("run", "db.sick")  # housekeeping only: it proves no row
    of_run = lake.json("proof", run_id)["certificates"]
    assert lake.json("proof", "db.sick")["certificates"] == of_run
    assert lake.json("proof", run_id[:-3])["certificates"] == of_run
    assert [(c["status"], c["rows_in"], c["rows_out"], c["rows_deleted"]) for c in of_run] == [
        ("PROVED", 10, 10, 0)
    ]
    (batch,) = of_run[0]["batches"]
    assert (batch["gate"], batch["subject"]) == ("PASSED", "rows")
    assert batch["attest"] == f"iceberg-maint attest lake.db.sick --snapshot {batch['snapshot_after']}"
    text = lake("proof", "db.sick").stdout
    assert "lake.db.sick: PROVED. 1 commit proved: 10 rows in = 10 rows out + 0 deleted." in text
    assert "  prove it again:\n    iceberg-maint attest lake.db.sick --snapshot" in text
    assert lake("proof", run_id, "--markdown").stdout.startswith("**PROVED**: 1 commit proved")


def test_proof_with_an_unknown_commit_exits_4(lake: Lake) -> None:
    lake.engine.results = [UNKNOWN]
    run_id = lake.json("run", "db.sick", *REWRITE, exit_code=4)["run_id"]
    assert lake.json("proof", run_id, exit_code=4)["certificates"][0]["status"] == "UNPROVED"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("db.sick", "lake.db.sick has no recorded commit with a proof."),
        ("db.sikc", "catalog lake has no table 'lake.db.sikc'."),
        ("cli-none", "no record of a run 'cli-none'."),
    ],
)
def test_proof_of_an_unknown_name_exits_2(lake: Lake, name: str, message: str) -> None:
    assert lake.json("proof", name, exit_code=2)["error"]["message"] == message


def test_proof_of_an_ambiguous_beginning_names_the_runs(lake: Lake) -> None:
    lake("run", "db.sick")
    lake("run", "db.healthy")
    assert "2 runs begin with 'cli-'" in lake("proof", "cli-").stderr


def test_proof_of_an_unknown_run_names_the_newest_three(lake: Lake) -> None:
    for _ in range(5):
        lake("run", "db.healthy")
    fix = lake.json("proof", "cli-none", exit_code=2)["error"]["fix"]
    assert fix.startswith("name a table, or a run of 'iceberg-maint history'; the newest are cli-")
    assert len(re.findall(r"cli-[\w-]+", fix)) == 3


def test_lake_without_tables_is_named_and_not_silent(lake: Lake) -> None:
    lake.catalog.content.clear()
    assert lake("run").stdout == "no tables\n"
    assert lake("observe").stdout == "no tables\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_no_wider_than_the_terminal(lake: Lake, command: str) -> None:
    assert [line for line in lake(command, "--help").stdout.splitlines() if len(line) > 80] == []


def test_mistyped_command_is_answered_with_the_nearest_one(lake: Lake) -> None:
    assert "No such command 'tabels'. Did you mean 'tables'?" in lake("tabels").stderr
    assert "Did you mean 'scan'?" in lake("orphans", "scna").stderr


def test_name_is_cut_on_no_screen_and_no_line_is_too_wide(lake: Lake) -> None:
    name = "lake.db.a_table_whose_name_is_much_longer_than_usual_for_a_table"
    key = "day=2026-11-22T00-00-00-of-a-partition-key-that-is-long-too"
    lake.catalog.put(table_of(name, {key.removeprefix("day="): 8}))
    lake("run", name, *REWRITE)
    lake.catalog.put(replace(table_of(name, {key.removeprefix("day="): 8})))
    for command in (["tables"], ["observe", name], ["plan", name], ["why", name], ["history"], ["report"]):
        text = lake(*command).stdout
        assert name.removeprefix("lake.") in text, command
        for line in text.splitlines():
            assert len(line) <= 80 or len(line.split()) == 1, (command, line)
            assert line == line.rstrip()


def test_name_of_the_catalog_stays_where_there_are_several(tmp_path: object, lake: Lake) -> None:
    other = lake_of(lake.home, {"other.db.t": {"1": 1}}).catalog
    lake.context = changed(lake.context, catalogs={**lake.context.catalogs, "other": other})
    assert "\nlake.db.sick " in lake("tables").stdout
