"""Writers that began to write small files: which, since which commit."""

from __future__ import annotations

from iceberg_maint.core.health.state_facts import WriterChange, writer_changes
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot
from iceberg_maint.report.fleet import writer_change_sentence

LARGE, SMALL, SMALL_BELOW = 90_000_000, 1_000_000, 75_000_000
SPARK = {"engine-name": "spark", "app-name": "ingest"}
FLINK = {"engine-name": "flink", "flink.job-id": "j1"}


def history(*sizes: int, writer: dict[str, str] = SPARK, first: int = 1, files: int = 2, **more: str):
    return [
        Snapshot(
            first + n,
            None,
            first + n,
            1_800_000_000_000 + (first + n) * 60_000,
            "append",
            {**writer, "added-data-files": str(files), "added-files-size": str(files * size), **more},
            "l",
        )
        for n, size in enumerate(sizes)
    ]


def changes(snapshots):
    return writer_changes(snapshots, "s3://b/t", SMALL_BELOW)


def test_change_names_the_first_small_commit_and_the_writer() -> None:
    snapshots = history(*[LARGE] * 6, *[SMALL] * 5)
    assert changes(snapshots) == (
        WriterChange("Apache Spark (application ingest)", 7, 1_800_000_420_000, 5, LARGE, SMALL),
    )


def test_one_small_commit_before_the_change_does_not_move_it() -> None:
    assert [c.snapshot_id for c in changes(history(*[LARGE] * 3, SMALL, *[LARGE] * 6, *[SMALL] * 8))] == [11]


def test_few_commits_on_a_side_are_no_change() -> None:
    assert changes(history(*[LARGE] * 4, *[SMALL] * 9)) == ()
    assert changes(history(*[LARGE] * 9, *[SMALL] * 4)) == ()
    assert changes([]) == ()


def test_files_that_were_small_before_or_are_not_small_now_are_no_change() -> None:
    assert changes(history(*[SMALL_BELOW - 1] * 6, *[SMALL] * 6)) == ()
    assert changes(history(*[4 * SMALL_BELOW] * 6, *[SMALL_BELOW] * 6)) == ()


def test_files_less_than_four_times_smaller_are_no_change() -> None:
    assert changes(history(*[SMALL_BELOW] * 6, *[SMALL_BELOW // 4 + 1] * 6)) == ()
    assert len(changes(history(*[SMALL_BELOW] * 6, *[SMALL_BELOW // 4] * 6))) == 1


def test_writers_are_compared_each_with_itself() -> None:
    spark = history(*[LARGE] * 12)
    flink = history(*[SMALL] * 12, writer=FLINK, first=20)
    assert changes([*spark, *flink]) == ()
    began = history(*[LARGE] * 6, *[SMALL] * 6, writer=FLINK, first=40)
    assert [c.writer for c in changes([*spark, *began])] == ["Apache Flink"]


def test_commits_of_maintenance_and_without_sizes_do_not_count() -> None:
    ours = history(*[SMALL] * 6, first=20, **{TOKEN_PROPERTY: "t"})
    without = history(*[SMALL] * 6, first=30, **{"added-files-size": "many"})
    assert changes([*history(*[LARGE] * 6), *ours, *without]) == ()


def test_applications_without_a_name_are_one_writer() -> None:
    runs = [
        history(size, writer={"engine-name": "spark", "app-id": f"local-{n}"}, first=n)[0]
        for n, size in enumerate([LARGE] * 5 + [SMALL] * 5, 1)
    ]
    [change] = changes(runs)
    assert writer_change_sentence(change) == (
        "Apache Spark (application local-6) writes files of 977 KiB since 2027-01-15 08:06:00 UTC (snapshot 6, "
        "5 commits); earlier files had 85.8 MiB"
    )
