"""Regressions of partition keys, names and secrets: keys that collide, secrets that leak, open ports."""

from __future__ import annotations

from iceberg_maint_tests.qualification.regressions.regression import Regression, off

KEYS_AND_SECRETS = (
    Regression(
        "partition-keys-that-meet",
        "dagster-io/dagster#11443, #6213",
        'NULL, the empty text and "null" give the same partition key',
        "Different partition values have different keys. The key of NULL is the field name without a value",
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
        "Dagster reads `...` in a partition value as a range",
        "Dots that Dagster would read as a range are encoded",
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
        "Python compares 0.0 and -0.0 as equal, but in Iceberg they are two partitions",
        "Floating-point values are compared by their bits",
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
        "The content of a manifest contradicts the manifest list, and the reader reports nothing",
        "The reader compares the entries and rows of a manifest with the counts in the manifest list",
        off(
            "catalog/manifests/reader.py",
            "    _check_counts(manifest, table, status, records)\n",
            "",
            "catalog/manifests/test_reader.py::test_live_entries_counts_that_contradict_the_manifest_list_are_refused",
        ),
    ),
    Regression(
        "name-steers-the-terminal",
        "apache/iceberg (any engine can write summaries)",
        "Text that another engine wrote into a snapshot summary is printed unchanged",
        "Names are cut to a maximum length, and control characters are removed",
        off(
            "core/model/other_writers.py",
            'printable = "".join(c if c.isprintable() else " " for c in name)',
            "printable = name",
            "core/decisions/test_foreign_maintainers.py::test_name_that_an_engine_wrote_is_cut_and_cannot_steer_a_terminal",
        ),
    ),
    Regression(
        "secret-in-a-message",
        "apache/iceberg#17804, trinodb/trino#28537",
        "A password appears in the text of an error, and from there in logs and pages",
        "Known secrets are masked by value in all output",
        off(
            "config/secrets.py",
            "            text = text.replace(secret, MASK)\n",
            "            pass\n",
            "config/test_secrets.py::test_secret_is_masked_wherever_it_stands",
        ),
    ),
    Regression(
        "secret-word-of-other-letters",
        "Python's re, IGNORECASE",
        "A quick search for the words of secrets misses letters that the expression counts as equal, as the long s",
        "Text outside ASCII is searched by the expression itself",
        off(
            "config/secrets.py",
            "    if text.isascii():\n",
            "    if True:\n",
            "config/test_secrets.py::test_value_of_a_secret_key_is_masked_in_every_text",
        ),
    ),
    Regression(
        "secret-in-the-file",
        "dagster-io/dagster#26070, #31718",
        "Every tool that shows the configuration also shows a secret written in it",
        "Secrets come from the environment. A secret in the file is refused",
        off(
            "config/secrets.py",
            "    if (_SECRET_KEY.search(key) and not about) or _AZURE_SECRET.search(text):\n",
            "    if False:\n",
            "config/test_secrets.py::test_secret_in_the_file_is_refused",
        ),
    ),
    Regression(
        "secret-among-arguments",
        "apache/iceberg#17920",
        "Catalog credentials are arguments of a JVM, and every user of the machine can read them",
        "The JVM receives credentials through a socket",
        off(
            "engines/spark/session/settings.py",
            '    if key.startswith(("spark.sql.catalog.", "spark.hadoop.")):\n',
            "    if False:\n",
            "spark/session/test_session.py::test_arguments_of_the_jvm_hold_what_it_starts_with_and_no_secret",
        ),
    ),
    Regression(
        "short-secret-in-a-path",
        "our trial on S3",
        "The path of a jar contains a key id `admin`: `spark.jars` is withheld, and Iceberg's classes are missing",
        "Settings that are read at the start are never withheld",
        off(
            "engines/spark/session/settings.py",
            "    if not key.startswith(READ_AT_START):\n",
            "    if True:\n",
            "spark/session/test_session.py::test_settings_read_at_the_start_stay_arguments_whatever_short_secret_occurs_in_them",
        ),
    ),
    Regression(
        "open-port",
        "Spark's and Dagster's defaults",
        "Spark on one machine accepts connections from other machines",
        "A local master with an address other than loopback is refused",
        off(
            "engines/spark/session/settings.py",
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
            "defs/automation/observations.py",
            "            or self.last.pointer != self.pointer\n",
            "",
            "defs/test_sensors.py::test_commit_turns_red_in_one_tick_although_the_command_line_measured_it_first",
        ),
    ),
    Regression(
        "terminated-run-stops-the-automation",
        "a trial of the demo lake",
        "the checks that a terminated run skipped are neither failed nor passed, and due partitions are never "
        "requested again",
        "the automation asks the stored health, not the checks",
        off(
            "defs/automation/conditions.py",
            "    due = MaintenanceDue(table, context, translator) & not_in_progress()\n",
            "    failed = dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_failed())\n"
            "    due = MaintenanceDue(table, context, translator) & failed & not_in_progress()\n",
            "defs/test_automation.py::test_partition_whose_planned_evaluation_has_no_result_is_requested_again"
            "[DagsterRunStatus.CANCELED]",
        ),
    ),
    Regression(
        "stopped-run-evaluates-no-check",
        "a trial of the demo lake",
        "the checks of a terminated run stay without a result until the next observation",
        "the run evaluates its checks before it ends",
        off(
            "defs/runs/table_run.py",
            "            self._evaluate_planned()\n",
            "            pass\n",
            "defs/test_table_run.py::test_terminated_run_leaves_its_partitions_requested_and_its_checks_evaluated",
        ),
    ),
    Regression(
        "queue-hides-red-checks",
        "a trial of the demo lake",
        "while runs of more than three tables wait in the queue, Dagster shows their checks as in progress, because the "
        "run that observes them waits as well",
        "tables whose runs wait are observed in the ticks of a sensor, up to 150 partitions per tick",
        off(
            "defs/automation/tick_observation.py",
            "                chosen.append(signs)\n",
            "                pass\n",
            "defs/test_sensors.py::test_checks_of_many_tables_whose_runs_wait_are_red_after_some_ticks_without_a_run_that_"
            "waits_too",
        ),
    ),
    Regression(
        "card-announces-idle-operations",
        "a trial of the demo lake",
        "the card of a table under maintenance announces operations that have nothing to do",
        "an operation without a finding shows its predicted time while a run holds the lease",
        off(
            "defs/assets/table_card.py",
            "        if not any(p.findings and p.verdict is not Verdict.SKIP for p in decision.partitions):\n",
            "        if False:\n",
            "report/test_table_card.py::test_blocker_of_an_operation_is_named_with_its_owner",
        ),
    ),
    Regression(
        "idle-conversion-announced",
        "a trial of the demo lake",
        "the card of a table under maintenance announces a conversion for small files, which a conversion does not remove",
        "an operation that skips a partition does not count its findings",
        off(
            "defs/assets/table_card.py",
            "        if not any(p.findings and p.verdict is not Verdict.SKIP for p in decision.partitions):\n",
            "        if not any(p.findings for p in decision.partitions):\n",
            "report/test_table_card.py::test_blocker_of_an_operation_is_named_with_its_owner",
        ),
    ),
    Regression(
        "path-cuts-the-card",
        "a trial of the demo lake",
        "the card of a table that was only observed is cut at the right, because the path of its metadata file does not wrap",
        "the path is in the JSON of the metrics, which Dagster shows on demand",
        off(
            "defs/assets/metadata.py",
            '        "snapshot": text_value(str(measured.snapshot_id)),\n',
            '        "snapshot": text_value(str(measured.snapshot_id)),\n'
            '        "metadata_location": text_value(measured.metadata_location),\n',
            "defs/test_observe.py::test_observations_are_few_and_the_table_comes_last_under_its_own_labels",
        ),
    ),
    Regression(
        "conversion-proved-in-rows",
        "a trial of the demo lake",
        "the proof of a conversion in Dagster is an untrue equation: 3422 rows read = 150 written + 150 deleted",
        "the proof of an operation on positions is stated in positions",
        off(
            "report/certificate.py",
            "    if operation in POSITION_OPERATIONS:\n        return Subject.POSITIONS\n",
            "",
            "report/test_work.py::test_proof_of_a_conversion_is_in_positions",
        ),
    ),
    Regression(
        "conversion-in-the-history-of-files",
        "a trial of the demo lake",
        "the history of a conversion shows its data files as files before, and its delete files as files after",
        "the work of an operation on positions is stated in delete files",
        off(
            "report/housekeeping_text.py",
            "        if outcome.operation in POSITION_OPERATIONS:\n",
            "        if False:\n",
            "report/test_work.py::test_work_of_an_operation_on_positions_is_in_delete_files",
        ),
    ),
    Regression(
        "conversion-counted-as-fewer-files",
        "a trial of the demo lake",
        "the report counts the difference between data files and delete files of a conversion as data files fewer",
        "the report counts the files of rewrites only",
        off(
            "report/fleet.py",
            "        if r.operation not in POSITION_OPERATIONS\n",
            "",
            "report/test_work.py::test_fleet_counts_fewer_data_files_of_rewrites_only",
        ),
    ),
    Regression(
        "advice-beyond-the-budget",
        "a trial of a table of 1,000 partitions",
        "mode advise says that a run would maintain every due partition, though its plan ends at the budget of the run",
        "the sentence counts the partitions of the planned batches, and names the rest",
        off(
            "report/plan_notes.py",
            "{number(self.planned_partitions)} of ",
            "{number(self.due_partitions)} of ",
            "report/test_work.py::test_advice_counts_the_partitions_of_the_next_run_not_all_that_are_due",
        ),
    ),
    Regression(
        "table-cuts-the-card",
        "a trial of the demo lake",
        "the card of a housekeeping asset is cut at the right, because Dagster draws a table below it at its full width",
        "checks and materializations have the orphans as JSON",
        off(
            "defs/assets/housekeeping_metadata.py",
            "json_value(marks)",
            "dg.MetadataValue.table([dg.TableRecord(m) for m in marks])",
            "defs/test_housekeeping.py::test_check_and_materialization_show_what_a_sweep_would_remove_before_it_does",
        ),
    ),
    Regression(
        "typo-becomes-a-partition",
        "a trial of the demo lake",
        "a partition key that no partition has is materialized, or turns the checks of a healthy table red",
        "the run passes its checks, drops the key and fails with the key's name",
        off(
            "defs/assets/data_run.py",
            "        return frozenset(keys)\n",
            "        return frozenset()\n",
            "defs/test_table_run.py::test_partition_that_never_existed_is_dropped_and_turns_nothing_red",
        ),
    ),
    Regression(
        "healthy-table-looks-missing",
        "a trial of the demo lake",
        "Dagster shows a healthy table that was never maintained as missing, with checks that were not evaluated",
        "an observation reports healthy partitions once as examined, and evaluates their checks",
        off(
            "defs/runs/examined.py",
            "    return sorted(set(healthy).difference(materialized())) if healthy else []\n",
            "    return []\n",
            "defs/test_examined.py::test_healthy_partition_never_maintained_is_materialized_once_as_examined_and_"
            "unhealthy_one_stays_missing",
        ),
    ),
    Regression(
        "sick-partition-looks-examined",
        "a trial of the demo lake",
        "Dagster shows partitions that wait for their first maintenance as materialized",
        "only a partition without a finding is reported as examined",
        off(
            "defs/runs/examined.py",
            "        if p.reason in _HEALTHY and not p.findings and p.partition in measured.partitions\n",
            "        if p.partition in measured.partitions\n",
            "defs/test_examined.py::test_healthy_partition_never_maintained_is_materialized_once_as_examined_and_"
            "unhealthy_one_stays_missing",
        ),
    ),
    Regression(
        "card-fails-the-maintenance",
        "a trial of the demo lake",
        "a proof that cannot be read fails the run whose batch was committed",
        "an error of a description is logged, and the work goes on",
        off(
            "defs/assets/table_card.py",
            "    except Exception as error:  # noqa: BLE001 - the work goes on\n",
            "    except KeyboardInterrupt as error:\n",
            "defs/test_table_run.py::test_proof_that_cannot_be_read_fails_no_maintenance",
        ),
    ),
    Regression(
        "long-card-is-hidden",
        "a trial of the demo lake",
        "Dagster hides the card of a table with many or long partition names behind a button",
        "the card shows less until it is shorter than the text that Dagster shows at once",
        off(
            "defs/assets/table_card.py",
            "        if len(card) <= MAX_CHARACTERS:\n",
            "        if card:\n",
            "report/test_table_card.py::test_card_is_never_longer_than_dagster_shows_at_once",
        ),
    ),
    Regression(
        "pause-hides-the-backlog",
        "a trial of the demo lake",
        "a paused table shows no due partition and no backlog",
        "what waits or is stopped counts as backlog",
        off(
            "core/model/reasons.py",
            "if p.verdict is not Verdict.SKIP",
            "if p.verdict is Verdict.RUN",
            "cli/test_history_and_pause.py::test_paused_table_keeps_its_due_partitions_and_backlog",
        ),
    ),
    Regression(
        "confused-deputy",
        "Polaris CVE-2026-42809, CVE-2026-42810, CVE-2026-42812",
        "The metadata of a table names files of another team. A maintainer with wide credentials reads them, or "
        "deletes them as released or orphan files",
        "`approved_locations` of the catalog is checked before every request, and for every location that a "
        "pinned table or its live files name",
        off(
            "core/model/location.py",
            "        return parsed is not None and any(",
            "        return True or any(",
            "security/test_approved_locations.py::test_store_reaches_nothing_outside",
            "security/test_approved_locations.py::test_file_io_deletes_nothing_outside",
        ),
    ),
    Regression(
        "name-of-two-tables",
        "found in review; JDBC and REST catalogs accept such names",
        "A table is named `a.b` or `..`. The ledger and the command line write its name as that of another table",
        "Such a table is not maintained (ICM-156), and its files still count as its own",
        off(
            "catalog/adapter.py",
            "        if not table.is_unique:\n",
            "        if False:\n",
            "catalog/test_adapter.py::test_name_that_may_mean_another_table_is_refused",
        ),
    ),
    Regression(
        "name-stops-the-passes-of-all",
        "found in review",
        "The ledger keeps the claim of a table named `..`, cannot read the name again, and all orphan scans end with "
        "a traceback",
        "Claims of such tables are not stored",
        off(
            "ledger/registry.py",
            " for table, entry in stored.items() if table.is_unique}",
            " for table, entry in stored.items()}",
            "ledger/test_claims.py::test_claim_of_a_name_that_is_not_unique_is_not_stored",
        ),
    ),
    Regression(
        "quarantine-lost-with-its-partition",
        "found in design",
        "Pruning deletes the quarantine of a partition that is gone, while an attempt at it has no answer or the stored "
        "health names no partitions. The partition comes back, and what only a person may settle is tried again",
        "Back-off is deleted only of partitions that the stored health lacks, twice in a row and for `ledger_keep_days`, "
        "without open work",
        off(
            "ledger/pruning.py",
            "        gone -= stored | set(_of_open_work(conn, of_table))\n",
            "",
            *(
                "ledger/test_gone_partitions.py::test_back_off_stays_while_work_of_the_partition_is_open_and_goes_after_it"
                f"[sqlite-{status}]"
                for status in (None, "STARTED", "UNKNOWN")
            ),
            "ledger/test_gone_partitions.py::"
            "test_back_off_of_a_partition_that_the_stored_health_has_stays_whatever_is_noted_as_missing[sqlite]",
        ),
    ),
    Regression(
        "damaged-table-stops-the-fleet",
        "found in review",
        "A damaged metadata file raises an error that the reader does not expect, and the observation of all tables "
        "ends with a traceback",
        "Each error of a metadata file is one of its table (ICM-101)",
        off(
            "catalog/table_metadata.py",
            "    except Exception as error:",
            "    except (ValueError, KeyError, TypeError, EOFError, OSError) as error:",
            "catalog/test_table_metadata.py::test_parse_metadata_other_content_is_refused[damaged gzip]",
            "catalog/test_table_metadata.py::test_parse_metadata_other_content_is_refused[refs in a list]",
        ),
    ),
    Regression(
        "spec-that-contradicts-the-manifests",
        "found in review",
        "A partition spec has other fields than the manifests of a table, and the observation of all tables ends with "
        "a traceback",
        "Values that do not fit together are an error of the table (ICM-101)",
        off(
            "catalog/adapter.py",
            "    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:",
            "    except ZeroDivisionError as error:",
            "catalog/test_adapter.py::test_manifests_that_contradict_the_metadata_are_refused",
        ),
    ),
    Regression(
        "ancestors-without-end",
        "found in review",
        "A snapshot is its own ancestor, and a run never ends",
        "Such metadata are refused when they are read",
        off(
            "catalog/table_metadata.py",
            "    _check_parents({s.snapshot_id: s.parent_id for s in snapshots})\n",
            "",
            "catalog/test_table_metadata.py::test_parse_metadata_snapshot_that_is_its_own_ancestor_is_refused",
        ),
    ),
    Regression(
        "size-of-one-table-stops-the-fleet",
        "found in review",
        "`write.target-file-size-bytes` of a table is no size, and the observation of all tables ends with a traceback",
        "The property is checked before the measurement, and its error is one of the table",
        off(
            "loop/read_table.py",
            "    try:\n        target_file_size_bytes(policy.rewrite_data_files, state.properties)\n",
            "    try:\n        pass\n",
            "cli/test_inspect.py::test_target_size_of_a_table_that_is_no_size_stops_no_other_table",
        ),
    ),
    Regression(
        "masked-rows-rewritten",
        "apache/iceberg#13879",
        "A catalog answers with a row filter or column masks, the client ignores them, and maintenance reads rows that its "
        "principal may not read",
        "Each answer of a REST catalog is searched for read restrictions, and such a table is refused before a file is opened",
        off(
            "catalog/rest_client.py",
            '        session.hooks["response"].extend((refuse_restricted, _without_unparsed_types))\n',
            '        session.hooks["response"].append(_without_unparsed_types)\n',
            "security/test_read_restrictions.py::"
            "test_governed_table_is_refused_by_every_command_before_a_file_is_opened",
        ),
    ),
    Regression(
        "values-of-a-governed-table-shown",
        "found in review",
        "A table becomes governed, and its partition values remain on every screen",
        "The ledger shows records of a governed table without values",
        off(
            "ledger/records.py",
            "    return tuple(without_values(r) if {r.table, r.table_uuid} & governed else r for r in found)\n",
            "    return tuple(r for r in found if governed is not None)\n",
            "security/test_read_restrictions.py::"
            "test_stored_values_of_a_table_that_becomes_governed_are_redacted_until_it_is_free",
        ),
    ),
    Regression(
        "class-archive-that-others-can-write",
        "found in review",
        "Another user replaces the archive of Java's classes, and the driver runs that user's code",
        "The file and the folders above it belong to this user or root, and no other user can write them, or it is not used",
        off(
            "engines/spark/session/class_archive.py",
            "                    check_writers(file)\n",
            "",
            "spark/session/test_class_archive.py::test_archive_that_others_can_write_is_refused",
            "spark/session/test_class_archive.py::test_archive_in_a_folder_that_others_can_write_is_refused",
            "spark/session/test_class_archive.py::"
            "test_folder_above_that_others_can_write_is_refused_unless_it_is_sticky",
            "spark/session/test_class_archive.py::test_archive_of_another_user_is_refused",
        ),
    ),
)
