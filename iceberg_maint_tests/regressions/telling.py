"""Regressions of naming and telling: values taken for others, secrets told, ports opened."""

from __future__ import annotations

from iceberg_maint_tests.regressions.regression import Regression, off

TELLING = (
    Regression(
        "partition-keys-that-meet",
        "dagster-io/dagster#11443, #6213",
        'NULL, the empty text and "null" are one partition key',
        "keys are injective, NULL is the bare field name",
        off(
            "core/model/partition_key.py",
            'parts.append(name if value is None else f"{name}={_quote(_to_text(field, value))}")',
            'parts.append(name if value in (None, "") else f"{name}={_quote(_to_text(field, value))}")',
            "core/model/test_partition_key_properties.py::test_different_tuples_have_different_keys",
        ),
    ),
    Regression(
        "key-read-as-a-range",
        "dagster-io/dagster#10082, #19845",
        "`...` in a partition's value makes a range of it",
        "dots that would read as one are encoded",
        off(
            "core/model/partition_key.py",
            r'    return re.sub(r"^\.|\.$|\.{2,}", lambda m: "%2E" * len(m[0]), quoted)',
            "    return quoted",
            "core/model/test_partition_key_properties.py::test_any_names_and_texts_come_back",
        ),
    ),
    Regression(
        "zero-and-minus-zero",
        "Iceberg's comparison of partitions",
        "0.0 and -0.0 are one partition to Python and two to Iceberg",
        "floats are told apart by their bits",
        off(
            "catalog/manifests/reader.py",
            "    if any(isinstance(value, float) for p in places for value in p):\n",
            "    if False:\n",
            "catalog/manifests/test_reader.py::test_live_entries_zero_minus_zero_and_nan_are_three_partitions",
            "catalog/test_partition_values.py::test_files_of_a_key_hold_exactly_the_rows_of_its_partition[double-identity-by-hand]",
        ),
    ),
    Regression(
        "decoder-says-nothing",
        "apache/iceberg-python (bytes that disagree with their schema)",
        "a manifest that does not hold what its list says is read without a sound",
        "entries and rows are compared with the manifest list's",
        off(
            "catalog/manifests/reader.py",
            "    _check_counts(manifest, table, status, records)\n",
            "",
            "catalog/manifests/test_reader.py::test_live_entries_counts_that_contradict_the_manifest_list_are_refused",
        ),
    ),
    Regression(
        "name-steers-the-terminal",
        "apache/iceberg (summaries are anybody's text)",
        "what another engine writes into a summary is shown as it is",
        "names are cut, and nothing in them steers a terminal",
        off(
            "core/model/foreign_commits.py",
            'printable = "".join(c if c.isprintable() else " " for c in name)',
            "printable = name",
            "core/decisions/test_foreign_maintainers.py::test_name_that_an_engine_wrote_is_cut_and_cannot_steer_a_terminal",
        ),
    ),
    Regression(
        "secret-in-a-message",
        "apache/iceberg#17804, trinodb/trino#28537",
        "a password stands in an error's text and from there in logs and pages",
        "known secrets are masked by value wherever text leaves",
        off(
            "config/secrets.py",
            "            text = text.replace(secret, MASK)\n",
            "            pass\n",
            "config/test_secrets.py::test_secret_is_masked_wherever_it_stands",
        ),
    ),
    Regression(
        "secret-in-the-file",
        "dagster-io/dagster#26070, #31718",
        "a secret written in the configuration is shown by every tool that shows it",
        "secrets come from the environment; written ones are refused",
        off(
            "config/secrets.py",
            "    if _SECRET_KEY.search(key) and not about:\n",
            "    if False:\n",
            "config/test_secrets.py::test_secret_in_the_file_is_refused",
        ),
    ),
    Regression(
        "secret-among-arguments",
        "apache/iceberg#17920",
        "catalog credentials stand in a JVM's arguments, which every user of the machine can read",
        "they reach the JVM on a socket",
        off(
            "spark/session/settings.py",
            '        if not key.startswith(("spark.sql.catalog.", "spark.hadoop."))\n',
            "        if True\n",
            "spark/session/test_session.py::test_arguments_of_the_jvm_hold_what_it_starts_with_and_no_secret",
        ),
    ),
    Regression(
        "open-port",
        "Spark's and Dagster's defaults",
        "a Spark on one machine listens to all others",
        "a local master with another address than loopback is refused",
        off(
            "spark/session/settings.py",
            "    if not is_loopback:\n",
            "    if False:\n",
            "spark/session/test_session.py::test_spark_conf_local_master_that_listens_to_others_is_refused",
        ),
    ),
    Regression(
        "looking-hides-a-commit",
        "a trial of the demo lake",
        "the command line measures a commit, and Dagster stays green for up to six hours",
        "the last observation of Dagster is kept apart from the last measurement",
        off(
            "defs/due_observations.py",
            "            or self.last.pointer != self.pointer\n",
            "",
            "defs/test_sensors.py::test_commit_is_requested_and_turns_red_although_the_command_line_measured_it_first",
        ),
    ),
    Regression(
        "terminated-run-stops-the-automation",
        "a trial of the demo lake",
        "the checks that a terminated run skipped are neither failed nor passed, and due partitions are never "
        "requested again",
        "the automation asks the stored health, not the checks",
        off(
            "defs/automation.py",
            "    return MaintenanceDue(table, runtime, translator) & ~dg.AutomationCondition.in_progress()\n",
            "    failed = dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_failed())\n"
            "    return MaintenanceDue(table, runtime, translator) & failed & ~dg.AutomationCondition.in_progress()\n",
            "defs/test_automation.py::test_partition_whose_planned_evaluation_has_no_result_is_requested_again"
            "[DagsterRunStatus.CANCELED]",
        ),
    ),
    Regression(
        "typo-becomes-a-partition",
        "a trial of the demo lake",
        "a partition key that no partition has is materialized, or turns the checks of a healthy table red",
        "the run passes its checks, drops the key and fails with the key's name",
        off(
            "defs/data_run.py",
            "        return frozenset(keys)\n",
            "        return frozenset()\n",
            "defs/test_table_run.py::test_partition_that_never_existed_is_dropped_and_turns_nothing_red",
        ),
    ),
    Regression(
        "pause-hides-the-backlog",
        "a trial of the demo lake",
        "a paused table shows no due partition and no backlog",
        "what a stop of the whole table delays counts as backlog",
        off(
            "core/model/reasons.py",
            "p.verdict is Verdict.RUN or p.reason in _DELAYS)",
            "p.verdict is Verdict.RUN)",
            "cli/test_history_and_pause.py::test_paused_table_keeps_its_due_partitions_and_backlog",
        ),
    ),
)
