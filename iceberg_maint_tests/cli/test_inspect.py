"""tables, observe, plan, why: what they say, and that they change nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.health.metrics import metric_docs, partition_metrics, table_metrics
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.core.planning.spark_memory import DeclaredMemory
from iceberg_maint.core.policy.data import policy_keys
from iceberg_maint.ports.observers import NoTelemetry, Observation
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.cli.conftest import NOW_MS, REJECTED, REWRITE, TARGET_BYTES, Lake, table_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import fake_table
from iceberg_maint_tests.support.ledger.values import make_record

pytestmark = pytest.mark.seconds

SICK = TableId.parse("lake.db.sick")


def why(lake: Lake, *arguments: str) -> Any:
    return lake.json("why", *arguments)


def deferral(lake: Lake, partition: str, **history: Any) -> None:
    """Back-off or quarantine of one partition of `sick`."""
    uuid = lake.catalog.pin(SICK).uuid
    lake.context.ledger.health.set_partition_history(
        uuid, Operation.REWRITE_DATA_FILES, {partition: PartitionHistory(**history)}
    )


def test_tables_tell_status_backlog_and_no_estimate_before_the_first_batch(lake: Lake) -> None:
    healthy, sick = lake.json("tables")["tables"]
    assert (healthy["verdict"], healthy["reason"], healthy["backlog_bytes"], healthy["estimate_seconds"]) == (
        "SKIP",
        "healthy",
        0,
        0.0,
    )
    assert (sick["verdict"], sick["reason"], sick["due_partitions"], sick["partitions"]) == (
        "RUN",
        "small_files",
        2,
        3,
    )
    assert (sick["backlog_bytes"], sick["estimate_seconds"], sick["small_files"]) == (18_000, None, 20)


def test_tables_estimate_by_the_speed_of_earlier_batches(lake: Lake) -> None:
    write = lake.engine.write

    def slow(batch: Any, policy: Any) -> Any:
        lake.clock.sleep(2)
        return write(batch, policy)

    lake.engine.write = slow  # type: ignore[method-assign]
    lake("run", "db.sick", "--partition", "day=1")
    (sick,) = (t for t in lake.json("tables")["tables"] if t["table"] == str(SICK))
    assert (sick["backlog_bytes"], sick["estimate_seconds"]) == (8_000, 1.6)


@pytest.mark.parametrize("mode", ["act", "advise"])
def test_work_that_read_no_data_gives_no_estimate_on_any_screen(lake: Lake, mode: str) -> None:
    lake.configure(f"defaults: {{mode: {mode}}}\n")
    lake("observe")
    record = make_record("r", SICK, lake.catalog.pin(SICK).uuid)
    batch = replace(record.outcome.batches[0], input_bytes=0, seconds=2.0)
    expiry = replace(record.outcome, operation=Operation.EXPIRE_SNAPSHOTS, batches=(batch,))
    lake.context.ledger.records.append(replace(record, operation=expiry.operation, outcome=expiry))
    _, sick = lake.json("tables")["tables"]
    assert (sick["backlog_bytes"], sick["estimate_seconds"]) == (18_000, None)
    assert lake.json("report")["summary"]["estimate_seconds"] is None
    assert lake.json("plan", "db.sick")["operations"][REWRITE]["estimate_seconds"] is None
    assert why(lake, "db.sick")["advice"] == sick["advice"]


def test_tables_in_mode_advise_say_what_a_run_would_do(lake: Lake) -> None:
    lake.configure("defaults: {mode: advise}\n")
    healthy, sick = lake.json("tables")["tables"]
    assert (healthy["deferred_by"], healthy["advice"]) == (None, None)
    assert (sick["due_partitions"], sick["backlog_bytes"], sick["deferred_by"]) == (2, 18_000, "mode: advise")
    assert sick["advice"] == {
        "due_partitions": 2,
        "partitions": 3,
        "batches": 1,
        "input_files": 18,
        "output_files": 2,
        "input_bytes": 18_000,
        "estimate_seconds": None,
        "planned_partitions": 2,
        "deferred_by": "mode: advise",
    }
    assert why(lake, "db.sick")["advice"] == sick["advice"]
    assert "mode: advise: 1 batch would make 2 files of 18" in lake("tables").stdout
    assert lake.engine.batches == []


def test_tables_measure_only_what_changed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake("tables")
    lake.catalog.put(table_of("lake.db.new", {"1": 1}))
    measured: list[str] = []
    measure = lake.catalog.measure
    monkeypatch.setattr(
        lake.catalog,
        "measure",
        lambda state, policy: (measured.append(state.table.name), measure(state, policy))[1],
    )
    assert [t["table"] for t in lake.json("tables")["tables"]] == [
        "lake.db.healthy",
        "lake.db.new",
        "lake.db.sick",
    ]
    assert measured == ["new"]


def test_tables_use_the_properties_stored_with_the_health(lake: Lake) -> None:
    lake.catalog.put(
        table_of("lake.db.own", {"1": 3}, properties={"maintenance.rewrite_data_files.min_input_files": "3"})
    )
    lake("observe")
    (own,) = (t for t in lake.json("tables")["tables"] if t["table"] == "lake.db.own")
    assert own["verdict"] == "RUN"


def test_observe_prints_every_metric_by_its_name(lake: Lake) -> None:
    (table,) = lake.json("observe", "db.sick")["tables"]
    measured = lake.context.ledger.health.get(SICK)
    assert measured is not None
    assert table["snapshot"] == measured.snapshot_id
    assert table["health"].keys() == metric_docs().keys()
    assert table["health"]["snapshots"] == table_metrics(measured.table_health)["snapshots"]
    assert table["health"]["data_files"] == 20
    assert [p["partition"] for p in table["partitions"]] == ["day=1", "day=2", "day=3"]
    for partition in table["partitions"]:
        expected = partition_metrics(measured.partitions[partition["partition"]])
        assert partition["health"] == json.loads(json.dumps(expected))


def test_observe_of_a_table_with_delete_files_says_that_deletes_are_not_subtracted(lake: Lake) -> None:
    assert " 200 rows, 20 small, 0 delete files;" in " ".join(lake("observe", "db.sick").output.split())
    table = lake.catalog.content[SICK]
    deletes = replace(
        table.live_files[0], path="file:///mem/d", kind=FileKind.POSITION_DELETES, record_count=3
    )
    state = replace(table.state, metadata_location="file:///mem/next.json")
    lake.catalog.put(replace(table, state=state, live_files=(*table.live_files, deletes)))
    text = " ".join(lake("observe", "db.sick").output.split())
    assert " 200 rows (deletes not subtracted), 20 small, 1 delete file;" in text


def test_observe_of_everything_goes_on_after_a_table_that_fails(lake: Lake) -> None:
    table = lake.catalog.content[SICK]
    table.state.properties["maintenance.mode"] = "x"  # type: ignore[index]
    healthy, sick = lake.json("observe", exit_code=2)["tables"]
    assert healthy["health"]["data_files"] == 2
    assert sick["error"]["code"] == "ICM-100"
    assert set(sick["error"]) == {"code", "message", "fix"}


@pytest.mark.parametrize("size", ["abc", "-1", "0", " 1000 "])
def test_target_size_of_a_table_that_is_no_size_stops_no_other_table(lake: Lake, size: str) -> None:
    table = lake.catalog.content[SICK]
    table.state.properties["write.target-file-size-bytes"] = size  # type: ignore[index]
    healthy, sick = lake.json("observe", exit_code=2)["tables"]
    assert healthy["health"]["data_files"] == 2
    assert sick["error"]["code"] == "ICM-100"
    assert f"table property write.target-file-size-bytes is '{size}'" in sick["error"]["message"]


def test_time_that_no_calendar_has_is_shown_in_milliseconds() -> None:
    assert moment(253_402_300_799_000) == "9999-12-31 23:59:59 UTC"
    assert moment(2**62) == f"{2**62} ms"


def test_plan_is_what_run_executes(lake: Lake) -> None:
    planned = lake.json("plan", "db.sick")
    assert planned["executes"] is True
    assert planned["operations"][REWRITE]["decision"]["verdict"] == "RUN"
    lake("run", "db.sick")
    assert [b["batch_id"] for b in planned["operations"][REWRITE]["plan"]["batches"]] == lake.engine.batches


def test_plan_changes_nothing(lake: Lake) -> None:
    before = lake.catalog.content[SICK]
    lake("plan", "db.sick")
    assert lake.catalog.content[SICK] is before
    assert lake.engine.batches == []
    assert lake.context.ledger.work.open_batches(before.state.uuid, Operation.REWRITE_DATA_FILES) == ()


def test_plan_names_a_native_rewrite_by_the_policy(lake: Lake) -> None:
    native = lake("plan", "db.sick", "--set", "rewrite_data_files.strategy=native").stdout
    assert "\nnative: by rewrite_data_files.strategy\n" in native
    assert "by rewrite_data_files.strategy" not in lake("plan", "db.sick").stdout


def test_plan_in_advise_mode_plans_and_says_that_nothing_is_executed(lake: Lake) -> None:
    document = lake.json("plan", "db.sick", "--set", "mode=advise")
    assert document["executes"] is False
    assert len(document["operations"][REWRITE]["plan"]["batches"]) == 1
    assert "a run would not execute this" in lake("plan", "db.sick", "--set", "mode=advise").stdout


def test_plan_of_chosen_partitions(lake: Lake) -> None:
    assert (
        lake.json("plan", "db.sick", "--partition", "day=3")["operations"][REWRITE]["plan"]["batches"] == []
    )
    forced = lake.json("plan", "db.sick", "--partition", "day=3", "--force")
    assert [b["input_files"] for b in forced["operations"][REWRITE]["plan"]["batches"]] == [2]


def test_why_reports_four_different_truths(lake: Lake) -> None:
    assert why(lake, "db.healthy")["truth"] == (
        "The data is healthy: no threshold is crossed. Housekeeping is due: remove_orphan_files."
    )
    assert why(lake, "db.sick")["truth"] == (
        "Unhealthy: 2 of 3 partitions are due (enough small files to gain from a rewrite)."
    )
    lake.engine.results = [REJECTED]
    lake("run", "db.sick")
    waiting = why(lake, "db.sick")
    assert waiting["truth"] == (
        "Backing off: 2 of 3 partitions wait until 2027-01-15 08:05:00 UTC (in 5 min) after an attempt that failed, gained "
        "nothing or lost to other writers."
    )
    assert (waiting["verdict"], waiting["reason"]) == ("DEFER", "back_off")
    assert waiting["last"]["outcome"] == "DEFERRED"
    assert waiting["next"] == {
        "verdict": "DEFER",
        "reason": "back_off",
        "due_partitions": ["day=1", "day=2"],
        "until_ms": NOW_MS + 300_000,
    }
    deferral(lake, "day=1", ineffective=4, quarantined=True, reason="proof unequal")
    deferral(lake, "day=2", ineffective=4, quarantined=True, reason="proof unequal")
    held = why(lake, "db.sick")
    assert held["truth"] == "Quarantined: 2 of 3 partitions wait for a person after repeated failures."
    assert len({why(lake, "db.healthy")["change"], waiting["change"], held["change"]}) == 3


def test_why_of_one_partition_is_the_decision_of_the_next_run(lake: Lake) -> None:
    deferral(lake, "day=1", ineffective=1, not_before_ms=NOW_MS + 60_000, reason="conflict")
    waiting = why(lake, "db.sick", "--partition", "day=1")
    assert (waiting["verdict"], waiting["reason"]) == ("DEFER", "back_off")
    assert waiting["next"]["until_ms"] == NOW_MS + 60_000
    assert why(lake, "db.sick", "--partition", "day=2")["next"]["due_partitions"] == ["day=2"]
    healthy = why(lake, "db.sick", "--partition", "day=3")
    assert healthy["truth"] == "Healthy: no threshold is crossed."
    assert [p["partition"] for p in healthy["partitions"]] == ["day=3"]


def test_why_says_what_would_have_to_change(lake: Lake) -> None:
    change = {p["partition"]: p["change"] for p in why(lake, "db.sick")["partitions"]}
    assert (
        change["day=1"]
        == "nothing: the next run maintains it (iceberg-maint run lake.db.sick --partition day=1)"
    )
    assert change["day=3"].startswith("due once small_files ≥ 5 (now 2), or delete_ratio ≥ 0.3 (now 0)")
    deferral(lake, "day=1", ineffective=4, quarantined=True, reason="proof unequal")
    deferral(lake, "day=2", ineffective=1, not_before_ms=NOW_MS + 60_000, reason="conflict")
    change = {p["partition"]: p["change"] for p in why(lake, "db.sick")["partitions"]}
    assert change["day=1"] == (
        "remove the cause (proof unequal), then: iceberg-maint release lake.db.sick --partition day=1"
    )
    assert change["day=2"] == (
        "wait 60 s, or: iceberg-maint release lake.db.sick --partition day=2; last: conflict"
    )


@pytest.mark.parametrize(
    ("arguments", "truth", "change"),
    [
        (
            ["--set", "paused=true"],
            "Paused by policy key paused: true. 2 of 3 partitions are due.",
            "policy key paused: false",
        ),
        (
            ["--set", "mode=advise"],
            (
                "A run would maintain 2 of 3 partitions in 1 batch: 18 files with 17.6 KiB become 2 files. "
                "Deferred by mode: advise."
            ),
            "policy key mode: act",
        ),
        (
            ["--set", "rewrite_data_files.enabled=false"],
            "Nothing to do: the policy turns this operation off.",
            "policy key rewrite_data_files.enabled: true",
        ),
        (
            ["--set", "blackout_hours=00:00-23:59"],
            "Later: within the policy's blackout hours.",
            "the end of the blackout window 00:00-23:59",
        ),
    ],
)
def test_why_of_a_table_wide_stop(lake: Lake, arguments: list[str], truth: str, change: str) -> None:
    document = why(lake, "db.sick", *arguments)
    assert (document["truth"], document["change"]) == (truth, change)


def test_why_shows_every_policy_value_with_its_source(lake: Lake) -> None:
    lake.configure("tables: {'db.s*': {max_run_seconds: 7}}\n")
    shown = {v["key"]: (v["value"], v["source"]) for v in why(lake, "db.sick", "--set", "mode=act")["policy"]}
    assert list(shown) == [k.path for k in policy_keys()]
    assert shown["max_run_seconds"] == (7, "tables.'db.s*'")
    assert shown["mode"] == ("act", "command line")
    assert shown["retry.commit_tries"] == (10, "built-in")


def test_why_compares_each_metric_with_its_threshold(lake: Lake) -> None:
    (partition,) = why(lake, "db.sick", "--partition", "day=1")["partitions"]
    rows = {m["threshold_key"]: m for m in partition["metrics"]}
    assert rows["rewrite_data_files.min_input_files"] == {
        "metric": "small_files",
        "value": 10,
        "rule": "≥",
        "threshold": 5,
        "threshold_key": "rewrite_data_files.min_input_files",
        "source": "built-in",
        "crossed": True,
    }
    assert rows["rewrite_data_files.max_files"]["threshold"] is None


def test_why_reports_that_a_gain_is_missing(lake: Lake) -> None:
    table = lake.catalog.content[TableId.parse("lake.db.sick")]
    (file, *_) = (f for f in table.live_files if f.partition == "day=1" and f.kind is FileKind.DATA)
    large = [replace(file, path=f"file:///mem/l{i}", size_bytes=TARGET_BYTES) for i in range(45)]
    small = [replace(file, path=f"file:///mem/s{i}", size_bytes=10) for i in range(5)]
    lake.catalog.put(replace(table, live_files=(*large, *small)))
    partitions = {p["partition"]: p for p in why(lake, "db.sick")["partitions"]}
    day = partitions["day=1"]
    assert day["reason"] == "healthy"
    gain = {m["metric"]: (m["value"], m["threshold"], m["crossed"]) for m in day["metrics"]}
    assert gain["small_files"] == (5, 5, True)
    assert gain["files a rewrite would remove"] == (4, 5, False)
    assert "files a rewrite would remove ≥ 5 (now 4)" in day["change"]


def test_why_of_a_warning_does_not_call_it_untouched(lake: Lake) -> None:
    table = lake.catalog.content[TableId.parse("lake.db.healthy")]
    (first, *rest) = table.live_files
    deletes = replace(first, path="file:///mem/d", kind=FileKind.POSITION_DELETES, record_count=3)
    lake.catalog.put(replace(table, live_files=(first, *rest, deletes)))
    document = why(lake, "db.healthy")
    assert document["truth"] == ("Healthy: nothing is due; 1 crosses a warning threshold.")
    crossed = {m["threshold_key"] for m in document["partitions"][0]["metrics"] if m["crossed"]}
    assert crossed == {"rewrite_data_files.delete_ratio_warn"}


def test_why_of_young_equality_deletes_reports_their_age(lake: Lake) -> None:
    table = lake.catalog.content[TableId.parse("lake.db.healthy")]
    deletes = replace(
        table.live_files[0], path="file:///mem/d", kind=FileKind.EQUALITY_DELETES, data_sequence_number=2
    )
    lake.catalog.put(
        replace(table, live_files=(*table.live_files, deletes), commit_ms={"file:///mem/d": NOW_MS - 600_000})
    )
    (partition,) = why(lake, "db.healthy")["partitions"]
    age = {m["metric"]: (m["value"], m["threshold"], m["crossed"]) for m in partition["metrics"]}
    assert age["applicable_equality_delete_files"] == (1, 1, True)
    assert age["seconds since the oldest of them"] == (600, 3600, False)
    assert "seconds since the oldest of them ≥ 3,600 (now 600)" in partition["change"]


def test_why_shows_the_smaller_batches_after_a_conflict(lake: Lake) -> None:
    assert why(lake, "db.sick")["batches_after_conflicts"] == {}
    assert "smaller batches" not in lake("why", "db.sick").stdout
    conflict = CommitResult(CommitStatus.REJECTED, Rejection.CONFLICT, tries=10)
    lake.engine.results = [conflict]
    lake("run", "db.sick", "--operation", "rewrite_data_files")
    largest = {"files": 9, "input_bytes": 9_000, "partitions": 1}
    assert why(lake, "db.sick")["batches_after_conflicts"] == {"rewrite_data_files": largest}
    line = (
        "rewrite_data_files, smaller batches after conflicts: at most 9 files, 8.8 KiB and 1 partition each"
    )
    for arguments in (("why", "db.sick"), ("why", "db.sick", "--all")):
        assert line in " ".join(lake(*arguments).stdout.split())


def test_why_shows_the_cursor_of_each_operation(lake: Lake) -> None:
    assert why(lake, "db.sick")["cursors"] == []
    assert "cursor" not in lake("why", "db.sick").stdout
    (operation,) = lake.json("run", "db.sick", "--operation", "rewrite_data_files")["tables"][0]["operations"]
    (record,) = lake.json("history", "db.sick")["records"]
    last = operation["batches"][-1]
    (cursor,) = why(lake, "db.sick")["cursors"]
    assert abs(cursor.pop("advanced_ms") - lake.context.ledger.registry.database_ms()) < 60_000  # type: ignore[attr-defined]
    assert cursor == {
        "operation": "rewrite_data_files",
        "plan_id": record["plan_id"],
        "window_batches": len(operation["batches"]),
        "window_done": len(operation["batches"]),
        "batch_id": last["batch_id"],
        "partitions": last["partitions"],
        "snapshot": last["snapshot_after"],
        "fence": 1,
    }
    text = lake("why", "db.sick", "--all").stdout
    assert re.search(
        r"^cursor +window +batches done +batch +partitions +snapshot +advanced *$", text, re.MULTILINE
    )
    assert re.search(
        rf"^rewrite_data_files +{record['plan_id']} +1 of 1 +{last['batch_id']} ", text, re.MULTILINE
    )


def test_why_of_one_partition_shows_cursors_of_data_operations_only(lake: Lake) -> None:
    lake("run", "db.sick")
    named = [c["operation"] for c in why(lake, "db.sick")["cursors"]]
    assert "remove_orphan_files" in named
    of_partition = why(lake, "db.sick", "--partition", "day=1")["cursors"]
    assert [c["operation"] for c in of_partition] == ["rewrite_data_files"]


def test_why_of_a_partition_without_files_is_unknown(lake: Lake) -> None:
    result = lake("why", "db.sick", "--partition", "day=9")
    assert result.exit_code == 2
    assert "ICM-126 lake.db.sick has no live files in partition 'day=9'" in result.stderr


def test_why_for_people_reads_as_text(lake: Lake) -> None:
    text = lake("why", "db.sick").stdout
    assert "lake.db.sick: Unhealthy: 2 of 3 partitions are due" in text
    assert "last run: none recorded" in text
    assert "rewrite_data_files.min_input_files" in text


def test_brackets_in_a_partition_key_are_printed_as_they_are(lake: Lake) -> None:
    table = table_of("lake.db.odd", {"[red]x[/red]": 6})
    lake.catalog.put(replace(table))
    assert "day=[red]x[/red]" in lake("observe", "db.odd").stdout
    assert "day=[red]x[/red]" in lake("plan", "db.odd").stdout


@pytest.mark.parametrize("command", ["tables", "run"])
def test_name_in_the_configuration_that_no_catalog_lists_is_reported(lake: Lake, command: str) -> None:
    lake.configure(
        "tables: {db.sik: {mode: advise}, lake.db.sick: {mode: advise}, 'db.no*': {mode: advise}}\n"
    )
    told = [line for line in lake(command).stderr.splitlines() if line.startswith("warning")]
    assert told == ["warning: tables.'db.sik' in the configuration is no table of any catalog."]


def counted_pins(lake: Lake) -> list[TableId]:
    """The tables that are pinned from now on."""
    pinned: list[TableId] = []
    pin = lake.catalog.pin

    def counted(table: TableId) -> Any:
        pinned.append(table)
        return pin(table)

    lake.catalog.pin = counted  # type: ignore[method-assign]
    return pinned


def test_observe_of_unchanged_tables_reads_none_and_says_the_same(lake: Lake) -> None:
    first, listed = lake.json("observe"), lake.json("tables")
    pinned = counted_pins(lake)
    assert lake.json("observe") == first
    assert lake.json("tables") == listed
    assert pinned == []


class _Receiver(NoTelemetry):
    """Keeps the observations."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def table_observed(self, observation: Observation) -> None:
        self.observations.append(observation)


def test_observe_with_a_receiver_reports_the_decisions_of_changed_and_of_unchanged_tables(lake: Lake) -> None:
    first, receiver = lake.json("observe"), _Receiver()
    lake.context = changed(lake.context, telemetry=receiver)
    table = lake.catalog.content[SICK]
    lake.catalog.put(replace(table, state=replace(table.state, metadata_location="file:///mem/next.json")))
    assert lake.json("observe") == first
    # Tables are read by threads: which of them is reported first is open.
    assert sorted(
        (str(o.measured.table), [d.operation for d in o.decisions], [d.verdict for d in o.decisions])
        for o in receiver.observations
    ) == [
        ("lake.db.healthy", [*DATA_OPERATIONS], [Verdict.SKIP] * 3),
        ("lake.db.sick", [*DATA_OPERATIONS], [Verdict.SKIP, Verdict.RUN, Verdict.SKIP]),
    ]
    assert [len(o.histories) for o in receiver.observations] == [3, 3]


def test_observe_without_a_receiver_reads_the_history_of_all_tables_once(lake: Lake) -> None:
    first = lake.json("observe")
    asked: list[object] = []
    histories = lake.context.ledger.health.histories

    def counted(*given: Any) -> Any:
        asked.append(given)
        return histories(*given)

    lake.context.ledger.health.histories = counted  # type: ignore[method-assign]
    assert (lake.json("observe"), len(asked)) == (first, 1)


def test_observe_reads_the_table_whose_pointer_changed(lake: Lake) -> None:
    lake.json("observe")
    table = lake.catalog.content[SICK]
    lake.catalog.put(replace(table, state=replace(table.state, metadata_location="file:///mem/next.json")))
    pinned = counted_pins(lake)
    lake.json("observe")
    assert pinned == [SICK]


def test_observe_reads_again_after_a_change_of_the_file_sizes_of_the_policy(lake: Lake) -> None:
    lake.json("observe")
    lake.configure("tables: {'lake.db.sick': {rewrite_data_files: {target_file_size_bytes: 1100}}}\n")
    pinned = counted_pins(lake)
    sick = lake.json("observe")["tables"][1]
    assert (sick["health"]["small_files"], pinned) == (0, [SICK])
    assert lake.json("observe")["tables"][1] == sick
    assert pinned == [SICK]


def test_observe_reads_again_what_another_version_measured(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iceberg_maint.core.health import state_facts

    lake.json("observe")
    monkeypatch.setattr(state_facts, "MEASUREMENT_VERSION", state_facts.MEASUREMENT_VERSION + 1)
    state_facts._basis.cache_clear()
    pinned = counted_pins(lake)
    lake.json("observe")
    state_facts._basis.cache_clear()
    assert len(pinned) == 2


def test_observe_of_an_unchanged_table_reports_its_error_after_a_wrong_policy(lake: Lake) -> None:
    lake.json("observe")
    lake.configure("tables: {'lake.db.sick': {layout: {sort_by: [nothing]}}}\n")
    (healthy, sick) = lake.json("observe", exit_code=2)["tables"]
    assert ("error" in healthy, sick["error"]["code"]) == (False, "ICM-100")


def lake_of_keys(lake: Lake, keys: int) -> Lake:
    """The lake with a table `cdc` whose equality deletes have this number of keys, on a cluster of small executors."""
    files = [
        LiveFile(f"file:///mem/{i}", FileKind.DATA, 0, "__all__", 10, 1000, 1, "parquet") for i in range(8)
    ]
    deletes = LiveFile(
        "file:///mem/d", FileKind.EQUALITY_DELETES, 0, "__all__", keys, 100, 2, "parquet", equality_ids=(1,)
    )
    table = fake_table("lake.db.cdc", [*files, deletes], now_ms=1_700_000_000_000)
    lake.catalog.put(replace(table, state=replace(table.state, key_types={1: "long"})))
    memory = DeclaredMemory(512 * 1024**2, 2 * 1024**3, slots=1)
    lake.context = changed(lake.context, spark=replace(lake.context.engine.spark, memory=memory))
    return lake


def test_plan_says_which_memory_its_equality_deletes_need(lake: Lake) -> None:
    document = lake_of_keys(lake, 1_000).json("plan", "db.cdc")
    assert document["spark_memory"] == {
        "one_pass_bytes": 512 * 1024**2,
        "settings": [
            {
                "name": "spark.executor.memory",
                "needed_bytes": 512 * 1024**2,
                "declared_bytes": 512 * 1024**2,
                "short": False,
            },
            {
                "name": "spark.driver.memory",
                "needed_bytes": 134_328_320,
                "declared_bytes": 2 * 1024**3,
                "short": False,
            },
        ],
    }
    result = lake("plan", "db.cdc")
    assert (
        "equality deletes need at least spark.executor.memory 512m (512m declared), spark.driver.memory 129m"
        in " ".join(result.stdout.split())
    )
    assert "ICM-124" not in result.stderr
    assert lake.json("plan", "db.sick")["spark_memory"] is None


def test_plan_that_needs_more_memory_than_declared_warns_before_spark_starts(lake: Lake) -> None:
    result = lake_of_keys(lake, 10_000_000_000)("plan", "db.cdc")
    assert result.exit_code == 0
    assert (
        "ICM-124 lake.db.cdc: the equality deletes of a planned batch need more memory than spark.executor.memory = 512m. "
        "Fix: set spark.executor.memory = "
    ) in " ".join(result.stderr.split())
    assert "to read the data once" in " ".join(result.stdout.split())


def test_run_warns_of_short_memory_before_its_batch(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    assert lake_of_keys(lake, 10_000_000_000)("run", "db.cdc").exit_code == 0
    assert len(lake.engine.batches) > 0
    assert [r.getMessage()[:19] for r in caplog.records if "ICM" in r.getMessage()] == ["ICM-124 lake.db.cdc"]
