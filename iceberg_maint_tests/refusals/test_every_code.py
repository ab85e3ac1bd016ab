"""Every code: documented with the exit code it really has, given by the program, and shown by a test that makes
its situation real."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from iceberg_maint import errors
from iceberg_maint.errors import (
    CODES,
    ArchivedFileError,
    GovernedTableError,
    IcebergMaintError,
    StaleBatchError,
)
from iceberg_maint_tests.conftest import PROJECT

pytestmark = pytest.mark.seconds

MADE_REAL = {
    "ICM-100": "config/test_load.py::test_wrong_file_is_refused",
    "ICM-101": "catalog/test_adapter.py::test_pin_of_a_table_whose_metadata_is_gone_is_refused",
    "ICM-103": "spark/session/test_jars.py::test_resolve_fetched_jar_with_another_checksum_is_refused_and_not_cached",
    "ICM-104": "catalog/test_adapter.py::"
    "test_catalog_that_is_down_is_refused_in_one_line_without_its_password",
    "ICM-105": "spark/session/test_session.py::test_check_session_catalog_with_cache_is_refused",
    "ICM-106": "config/test_load.py::test_wrong_file_is_refused",
    "ICM-107": "config/test_load.py::test_hive_table_without_a_lock_is_refused_where_it_is_acted_on",
    "ICM-108": "catalog/test_table_metadata.py::test_parse_metadata_newer_format_version_is_refused",
    "ICM-109": "cli/test_foreign.py::test_run_is_refused_and_says_by_whom",
    "ICM-110": "removal/test_scan.py::test_table_whose_owner_forbids_it_is_refused",
    "ICM-111": "removal/test_scan.py::test_location_of_another_table_is_refused",
    "ICM-112": "removal/test_scan.py::test_files_elsewhere_need_a_declared_prefix",
    "ICM-113": "removal/test_scan.py::test_scheme_without_mapping_is_refused_and_with_it_matches",
    "ICM-114": "removal/test_scan.py::test_policy_below_the_floor_is_refused",
    "ICM-115": "removal/test_scan.py::test_clock_that_is_off_is_refused",
    "ICM-116": "defs/test_observe.py::test_instance_on_sqlite_is_refused_more_than_one_run",
    "ICM-117": "defs/test_observe.py::test_instance_that_would_block_after_a_crash_is_refused",
    "ICM-118": "config/test_load.py::test_wrong_file_is_refused",
    "ICM-119": "spark/deletes/test_convert.py::test_convert_by_a_key_that_cannot_be_compared_is_refused",
    "ICM-120": "spark/scan/test_staging.py::test_plan_tasks_data_file_referenced_twice_is_refused",
    "ICM-121": "cli/test_run.py::test_unknown_commit_exits_4_as_long_as_it_waits",
    "ICM-122": "removal/test_trash.py::test_abnormal_share_needs_the_digest_of_this_very_scan",
    "ICM-124": "spark/deletes/test_convert.py::"
    "test_convert_that_needs_more_memory_than_declared_is_refused_before_anything_is_read",
    "ICM-125": "cli/test_doctor.py::test_folder_that_cannot_be_written_is_refused",
    "ICM-126": "security/test_identifiers.py::test_no_table_is_found_by_a_hostile_name",
    "ICM-127": "spark/session/test_session.py::test_spark_conf_local_master_that_listens_to_others_is_refused",
    "ICM-128": "ledger/test_database.py::test_database_lost_later_is_an_error_with_its_code",
    "ICM-129": "spark/scan/test_staging.py::test_load_planned_table_expired_snapshot_is_stale",
    "ICM-130": "spark/commit/test_expire_snapshots.py::test_tag_that_went_with_an_expiry_is_reported_and_no_trash_is_swept",
    "ICM-131": "cli/test_dropped_source.py::test_run_is_refused_with_what_to_do",
    "ICM-132": "spark/session/test_executors.py::test_application_that_the_cluster_stops_is_an_error_with_its_cause",
    "ICM-133": "spark/session/test_catalog_access.py::test_class_that_is_missing_is_an_error_that_names_the_jar",
    "ICM-134": "cli/test_waits.py::test_tables_and_why_and_run_name_the_column_that_nothing_reads",
    "ICM-135": "spark/rewrite/test_columnar.py::"
    "test_columns_that_spark_cannot_read_in_files_that_columnar_cannot_are_unsupported",
    "ICM-137": "cli/test_doctor.py::test_rest_catalog_that_takes_no_requirements_is_a_warning",
    "ICM-140": "telemetry/test_delivery.py::test_receiver_that_is_down_is_logged_once_and_its_drops_are_sent_later",
    "ICM-142": "telemetry/test_receivers.py::test_client_that_is_not_installed_is_refused_with_the_command",
    "ICM-143": "cli/test_audit.py::test_edited_entry_is_named_and_exits_1",
    "ICM-144": "audit/test_log.py::test_required_log_that_cannot_be_written_refuses_the_run",
    "ICM-151": "alerts/test_alert_cycle.py::test_receiver_that_fails_gets_the_messages_at_the_next_pass_and_fails_no_other",
    "ICM-153": "removal/test_unreliable_listing.py::test_page_that_names_itself_as_the_next_one_ends_with_a_code",
    "ICM-154": "catalog/test_remote_signing.py::test_table_without_credentials_is_refused_before_a_file_is_read",
    "ICM-155": "security/test_approved_locations.py::test_store_reaches_nothing_outside",
    "ICM-156": "catalog/test_adapter.py::test_name_that_may_mean_another_table_is_refused",
    "ICM-160": "catalog/test_rest_client.py::test_wrong_secret_is_refused_without_being_shown",
    "ICM-161": "catalog/test_rest_client.py::test_catalog_that_serves_nothing_is_refused_with_its_code",
    "ICM-162": "loop/test_other_name.py::test_second_name_of_a_maintained_table_is_refused",
    "ICM-163": "catalog/test_service_errors.py::test_metastore_that_lacks_a_call_is_refused_by_its_name",
    "ICM-164": "spark/session/test_driver.py::test_driver_in_another_process_is_refused",
    "ICM-169": "security/test_read_restrictions.py::"
    "test_governed_table_is_refused_by_every_command_before_a_file_is_opened",
    "ICM-170": "catalog/test_rights_probe.py::test_missing_right_to_commit_is_named_by_the_catalog",
    "ICM-171": "cli/test_run.py::test_table_that_hangs_holds_no_other_and_is_named_with_its_code",
    "ICM-172": "removal/test_object_keys.py::test_archived_orphan_stays_and_the_others_go",
    "ICM-173": "catalog/manifests/test_live_files.py::test_live_files_path_that_names_two_objects_is_refused",
    "ICM-175": "spark/session/test_launch_settings.py::test_jvm_that_ends_at_its_start_is_an_error_with_its_code",
    "ICM-176": "loop/test_maintain.py::test_file_system_that_fails_this_process_is_named_and_does_not_count_against_the_partition",
    "ICM-177": "loop/test_measurer.py::test_assess_of_a_table_that_exceeds_the_memory_is_refused_with_the_sizes",
    "ICM-178": "spark/health/test_measure.py::test_table_with_partitions_that_spark_confuses_is_refused",
    "ICM-179": "cli/test_hanging_tables.py::test_table_that_a_catalog_never_answers_for_is_unknown_and_its_health_stays",
    "ICM-180": "spark/rewrite/test_parquet_properties.py::test_property_that_the_writer_meets_is_refused_with_its_value",
    "ICM-181": "cli/test_screens.py::test_fault_of_one_table_is_its_row_and_hides_no_other",
    "ICM-182": "spark/rewrite/test_parquet_properties.py::test_rewrite_that_a_named_reader_would_lose_the_table_by_is_refused",
    "ICM-183": "spark/test_long_paths.py::test_partition_whose_path_is_too_long_is_unsupported_alone",
    "ICM-184": "cli/test_program.py::test_environment_without_the_extra_is_refused_with_what_to_install",
    "ICM-185": "cli/test_attest.py::test_attest_of_different_rows_exits_1_with_rows_and_roll_back_until_accepted",
    "ICM-186": "loop/test_statement_attempt.py::test_work_that_no_engine_can_do_is_unsupported_with_each_reason",
    "ICM-187": "component/test_pipeline.py::test_maintenance_that_waited_for_longer_than_the_limit_says_so_and_no_longer_waits",
}


@cache
def module(path: str) -> tuple[str, dict[str, str]]:
    """A test module's source, and that of each of its tests."""
    source = (PROJECT / "iceberg_maint_tests" / path).read_text("utf-8")
    tests = {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }
    return source, tests


_VALUE = "a cause. Fix: end it."
"""A value that is the text of another error."""


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return _VALUE


def messages() -> Iterator[tuple[str, str, str]]:
    """File and line, message and fix of each error that the package makes with its code in the call."""
    for file in sorted((PROJECT / "iceberg_maint").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and len(node.args) > 1
                and re.fullmatch(r"ICM-\d+", _text(node.args[0]))
            ):
                fixes = [*node.args[2:], *(k.value for k in node.keywords if k.arg == "fix")]
                yield f"{file}:{node.lineno}", _text(node.args[1]), "".join(map(_text, fixes[:1]))


@cache
def given() -> dict[str, set[int]]:
    """Exit codes of the errors the program makes with a code, by code."""
    found: dict[str, set[int]] = defaultdict(set)
    for file in (PROJECT / "iceberg_maint").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            kind, first = getattr(errors, node.func.id, None), node.args[0]
            if (
                isinstance(kind, type)
                and issubclass(kind, IcebergMaintError)
                and isinstance(first, ast.Constant)
            ):
                found[str(first.value)].add(kind.exit_code)
    for error in (StaleBatchError("x"), GovernedTableError("x"), ArchivedFileError("x")):
        found[error.code].add(error.exit_code)
    # Told by the program as a whole, of an outcome: no error ends the run.
    found["ICM-121"].add(errors.EXIT_UNKNOWN)
    # Told by a decision: nothing is begun.
    found["ICM-131"].add(errors.EXIT_REFUSED)
    found["ICM-134"].add(errors.EXIT_REFUSED)
    # A warning of doctor.
    found["ICM-137"].add(errors.EXIT_DONE)
    # A warning of the component.
    found["ICM-187"].add(errors.EXIT_DONE)
    return found


def test_every_code_has_its_test() -> None:
    assert list(MADE_REAL) == list(CODES)


@pytest.mark.parametrize(("code", "node"), MADE_REAL.items())
def test_test_of_a_code_exists_and_names_it(code: str, node: str) -> None:
    path, name = node.split("::")
    source, tests = module(path)
    assert name in tests
    told = tests[name] if "parametrize" not in source else source
    assert code in told or (code, "StaleBatchError" in told) == ("ICM-129", True)


@pytest.mark.parametrize("code", CODES)
def test_code_is_given_with_the_exit_code_that_is_documented(code: str) -> None:
    page = (PROJECT / "docs" / "reference" / "errors.md").read_text("utf-8")
    (exits,) = re.findall(rf"^\| `{code}` \| .* \| (\d[^|]*) \| .* \|$", page, re.MULTILINE)
    assert given()[code] == {int(n) for n in re.findall(r"\d", exits)}


def test_every_message_has_one_fix_and_single_full_stops_also_around_the_text_of_another_error() -> None:
    found = list(messages())
    shown = {place: str(IcebergMaintError("ICM-100", message, fix)) for place, message, fix in found}
    assert len(found) > 300
    assert {p: t for p, t in shown.items() if t.count("Fix: ") > 1 or re.search(r"\w\.\.( |$)", t)} == {}
    assert {p: t for p, t in shown.items() if re.search(r"[^.?!] Fix: ", t)} == {}


@pytest.mark.parametrize(
    ("message", "fix", "shown"),
    [
        (
            "t: ICM-104 no answer. Fix: start it..",
            "repair t.",
            "ICM-100 t: ICM-104 no answer. Fix: repair t.",
        ),
        ("t: ICM-104 no answer. Fix: start it..", "", "ICM-100 t: ICM-104 no answer. Fix: start it."),
        ("t: it is full.. Nothing was done", "wait.", "ICM-100 t: it is full. Nothing was done. Fix: wait."),
        ("t is '..'. It is a/.. or ...", "", "ICM-100 t is '..'. It is a/.. or ..."),
    ],
)
def test_message_with_the_text_of_another_error_has_one_fix(message: str, fix: str, shown: str) -> None:
    assert str(IcebergMaintError("ICM-100", message, fix)) == shown
