"""The memo of manifests: a look with it equals a cold look, whatever the memo holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests import live_columns, live_files
from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.core.model.table_state import LayoutOrder, Manifest, SortColumn
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.catalog.conftest import BY_REGION, EVENTS, SCHEMA
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds

POLICY = RewriteDataFilesPolicy(target_file_size_bytes=4 << 20)
BY_BUCKET = spec(1, (1, 1001, BucketTransform(4), "id_bucket"))
UNPARTITIONED = spec(2)
VALUES = {0: (("eu",), ("us",), (None,)), 1: ((0,), (3,)), 2: ((),)}
SPECS = (BY_REGION, BY_BUCKET, UNPARTITIONED)
BY_ID = SortColumn("id", 1, "long")
ORDER = LayoutOrder((BY_ID,), (BY_ID,), sort_order_id=1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the manifests that are read."""
    paths: list[str] = []
    read = live_files.read_live_entries

    def counted(io: Any, manifest: Manifest, *more: Any) -> Any:
        paths.append(manifest.path)
        return read(io, manifest, *more)

    for module in (live_columns, live_files):
        monkeypatch.setattr(module, "read_live_entries", counted)
    return paths


def catalogs(folder: Path, min_files: int = 1) -> tuple[PyIcebergCatalog, PyIcebergCatalog]:
    """The catalog without a memo, and with one."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
    memo = ManifestMemo(folder / "memo" / "manifests.db", min_files=min_files)
    return PyIcebergCatalog("lake", properties), PyIcebergCatalog("lake", properties, memo)


def data(number: int, *files: File, by: Any = BY_REGION) -> ManifestFile:
    return ManifestFile(files, by, number, 10 + number)


def two_commits(folder: Path) -> TableFiles:
    """One manifest of `eu`, then one of `us` beside it."""
    table = TableFiles(folder / "t", SCHEMA, [BY_REGION])
    first = table.write_manifest(data(1, File("eu.parquet", ("eu",))), "first.avro")
    second = table.write_manifest(data(2, File("us.parquet", ("us",))), "second.avro")
    kept = iter([first, first, second])
    table._write_manifest = lambda _: next(kept)  # type: ignore[method-assign]
    table.commit([data(1)], snapshot_id=11, sequence_number=1, timestamp_ms=1)
    table.register(folder / "catalog.db", "db.events")
    return table


def second_commit(table: TableFiles, folder: Path) -> None:
    table.commit([data(1), data(2)], snapshot_id=12, sequence_number=2, timestamp_ms=2)
    table.register(folder / "catalog.db", "db.events")


def names(paths: list[str]) -> list[str]:
    return [p.rsplit("/", 1)[1] for p in paths]


def test_measure_after_a_commit_reads_the_new_manifest_only(tmp_path: Path, opened: list[str]) -> None:
    table = two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    warm.measure(warm.pin(EVENTS), POLICY)
    assert names(opened) == ["first.avro"]
    second_commit(table, tmp_path)
    opened.clear()
    measured = warm.measure(warm.pin(EVENTS), POLICY)
    assert names(opened) == ["second.avro"]
    assert measured == cold.measure(cold.pin(EVENTS), POLICY)


def test_live_files_of_one_partition_reads_its_manifest_only(tmp_path: Path, opened: list[str]) -> None:
    second_commit(two_commits(tmp_path), tmp_path)
    cold, warm = catalogs(tmp_path)
    state = warm.pin(EVENTS)
    warm.measure(state, POLICY)
    opened.clear()
    files = warm.live_files(state, ["region=us"])
    assert names(opened) == ["second.avro"]
    assert files == cold.live_files(state, ["region=us"])


def test_manifest_listed_with_other_facts_is_read_again(tmp_path: Path, opened: list[str]) -> None:
    two_commits(tmp_path)
    _, warm = catalogs(tmp_path)
    state = warm.pin(EVENTS)
    warm.measure(state, POLICY)
    (manifest,) = state.manifests
    for changed in (
        replace(manifest, length_bytes=manifest.length_bytes + 1),
        replace(manifest, sequence_number=7),
        replace(manifest, added_snapshot_id=99),
        replace(manifest, added_rows=None),
    ):
        opened.clear()
        warm.measure(replace(state, manifests=(changed,)), POLICY)
        assert names(opened) == ["first.avro"], changed


def test_another_order_is_read_again(tmp_path: Path, opened: list[str]) -> None:
    two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    state = warm.pin(EVENTS)
    warm.measure(state, POLICY)
    ordered = replace(state, order=ORDER)
    assert warm.measure(ordered, POLICY) == cold.measure(ordered, POLICY)
    opened.clear()
    assert warm.measure(ordered, POLICY) == warm.measure(ordered, POLICY)
    assert opened == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entry SET body = substr(body, 1, length(body) - 3)",
        "UPDATE entry SET body = zeroblob(length(body))",
        "UPDATE entry SET body = (SELECT body FROM entry AS other WHERE other.path <> entry.path)",
        "UPDATE entry SET partitions = (SELECT partitions FROM entry AS other WHERE other.path <> entry.path)",
        "UPDATE entry SET checksum = x'00', partitions_checksum = x'00'",
        "UPDATE entry SET wanted = 'older', identity = 'older'",
        "DELETE FROM entry",
        "DROP TABLE entry",
        "ALTER TABLE entry DROP COLUMN partitions",
    ],
)
def test_damaged_entry_is_a_cold_look(tmp_path: Path, damage: str) -> None:
    second_commit(two_commits(tmp_path), tmp_path)
    cold, warm = catalogs(tmp_path)
    state = warm.pin(EVENTS)
    warm.measure(state, POLICY)
    with closing(sqlite3.connect(tmp_path / "memo" / "manifests.db")) as connection, connection:
        connection.execute(damage)
    assert warm.live_files(state, ["region=us"]) == cold.live_files(state, ["region=us"])
    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)


@pytest.mark.parametrize("keep", [0, 1, 100, 5000])
def test_truncated_file_is_a_cold_look_and_is_replaced(tmp_path: Path, keep: int, opened: list[str]) -> None:
    two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    state = warm.pin(EVENTS)
    warm.measure(state, POLICY)
    file = tmp_path / "memo" / "manifests.db"
    file.write_bytes(file.read_bytes()[:keep] or b"no database at all" * 100)
    expected = cold.measure(state, POLICY)
    assert warm.measure(state, POLICY) == expected
    warm.measure(state, POLICY)
    opened.clear()
    assert warm.measure(state, POLICY) == expected
    assert opened == []


def test_memo_that_cannot_be_written_is_a_cold_look(tmp_path: Path) -> None:
    two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    (tmp_path / "memo").write_text("a file, not a folder")
    state = warm.pin(EVENTS)
    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)


def test_many_small_manifests_are_kept_once_the_files_of_their_table_reach_the_least_number(
    tmp_path: Path, opened: list[str]
) -> None:
    """A table of a million files may have 2,500 manifests of 400. What counts is the table, not each manifest."""
    table = two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    warm._memo = ManifestMemo(tmp_path / "memo.db", min_files=2)
    warm.measure(warm.pin(EVENTS), POLICY)
    assert not (tmp_path / "memo.db").exists()
    second_commit(table, tmp_path)
    state = warm.pin(EVENTS)
    expected = cold.measure(state, POLICY)
    assert warm.measure(state, POLICY) == expected
    opened.clear()
    assert warm.measure(state, POLICY) == expected
    assert opened == []
    files = warm.live_files(state, ["region=us"])
    assert names(opened) == ["second.avro"]
    assert files == cold.live_files(state, ["region=us"])


def test_delete_files_do_not_count_towards_the_least_number_of_files(tmp_path: Path) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    deletes = ManifestFile(
        (File("d", ("eu",), content=2, equality_ids=(1,)),), BY_REGION, 2, 11, is_deletes=True
    )
    table.commit(
        [data(1, File("eu.parquet", ("eu",))), deletes], snapshot_id=11, sequence_number=2, timestamp_ms=1
    )
    table.register(tmp_path / "catalog.db", "db.events")
    cold, warm = catalogs(tmp_path)
    warm._memo = ManifestMemo(tmp_path / "memo.db", min_files=2)
    state = warm.pin(EVENTS)
    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)
    assert not (tmp_path / "memo.db").exists()


def test_small_tables_open_no_memo(tmp_path: Path) -> None:
    two_commits(tmp_path)
    cold, warm = catalogs(tmp_path)
    warm._memo = ManifestMemo(tmp_path / "memo.db")
    state = warm.pin(EVENTS)
    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)
    assert warm.live_files(state, ["region=eu"]) == cold.live_files(state, ["region=eu"])
    assert not (tmp_path / "memo.db").exists()


def test_size_limit_deletes_other_entries(tmp_path: Path) -> None:
    second_commit(two_commits(tmp_path), tmp_path)
    cold, warm = catalogs(tmp_path)
    warm._memo = ManifestMemo(tmp_path / "memo.db", max_bytes=1, min_files=1)
    state = warm.pin(EVENTS)
    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)
    with closing(sqlite3.connect(tmp_path / "memo.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM entry").fetchone() == (0,)


def test_size_of_an_entry_is_that_of_its_row(tmp_path: Path) -> None:
    """Path and identity of a manifest of one file are larger than its entries."""
    second_commit(two_commits(tmp_path), tmp_path)
    _, warm = catalogs(tmp_path)
    warm.measure(warm.pin(EVENTS), POLICY)
    columns = "path, identity, wanted, checksum, partitions, partitions_checksum, body"
    total = " + ".join(f"length(CAST({c} AS BLOB))" for c in columns.split(", "))
    with closing(sqlite3.connect(tmp_path / "memo" / "manifests.db")) as connection:
        rows = connection.execute(f"SELECT size, {total} FROM entry").fetchall()
    assert len(rows) == 2
    assert [size for size, _ in rows] == [length for _, length in rows]


def test_entries_that_nobody_used_for_a_month_are_deleted(tmp_path: Path) -> None:
    table = two_commits(tmp_path)
    _, warm = catalogs(tmp_path)
    warm.measure(warm.pin(EVENTS), POLICY)
    with closing(sqlite3.connect(tmp_path / "memo" / "manifests.db")) as connection, connection:
        connection.execute("UPDATE entry SET path = 'gone', day = day - 31")
    second_commit(table, tmp_path)
    warm.measure(warm.pin(EVENTS), POLICY)
    with closing(sqlite3.connect(tmp_path / "memo" / "manifests.db")) as connection:
        paths = {p.rsplit("/", 1)[1] for (p,) in connection.execute("SELECT path FROM entry")}
    assert paths == {"first.avro", "second.avro"}


def test_entry_that_is_used_is_kept_for_another_month(tmp_path: Path) -> None:
    second_commit(two_commits(tmp_path), tmp_path)
    days = []
    for _ in range(2):
        _, warm = catalogs(tmp_path)
        warm.measure(warm.pin(EVENTS), POLICY)
        with closing(sqlite3.connect(tmp_path / "memo" / "manifests.db")) as connection, connection:
            days.append(connection.execute("SELECT MIN(day) FROM entry").fetchone()[0])
            connection.execute("UPDATE entry SET day = day - 20")
    assert 0 <= days[1] - days[0] <= 1


@st.composite
def files(draw: st.DrawFn, spec_id: int, manifest: int, *, deletes: bool) -> tuple[File, ...]:
    made = []
    for n in range(draw(st.integers(0, 4))):
        content = draw(st.sampled_from((1, 2))) if deletes else 0
        low = draw(st.integers(-5, 300))
        bounded = draw(st.booleans()) and not deletes
        made.append(
            File(
                draw(st.sampled_from((f"f{manifest}-{n}", "f0-0", "f1-1"))),
                draw(st.sampled_from(VALUES[spec_id])),
                draw(st.integers(1, 1 << 33)),
                draw(st.integers(0, 1 << 40)),
                draw(st.sampled_from((0, 1, 2))),
                content,
                snapshot_id=draw(st.sampled_from((None, 11, 999))),
                sequence_number=draw(st.integers(1, manifest + 1)),
                equality_ids=(1,) if content == 2 else None,
                sort_order_id=draw(st.sampled_from((None, 1))),
                referenced_data_file=draw(st.sampled_from((None, "f0-0", "f9-9"))) if content == 1 else None,
                lower_bounds={1: low.to_bytes(8, "little", signed=True)} if bounded else None,
                upper_bounds={1: (low + 9).to_bytes(8, "little", signed=True)} if bounded else None,
            )
        )
    return tuple(made)


@st.composite
def histories(draw: st.DrawFn) -> list[list[int] | ManifestFile]:
    """Manifests, each followed by the numbers of those that the next snapshot lists."""
    history: list[Any] = []
    for number in range(draw(st.integers(1, 5))):
        spec_id, deletes = draw(st.integers(0, 2)), draw(st.booleans())
        content = draw(files(spec_id, number, deletes=deletes))
        manifest = ManifestFile(
            content,
            SPECS[spec_id],
            number + 1,
            number + 11,
            is_deletes=deletes,
            wrong={"min_sequence_number": 0},
        )
        history += [manifest, draw(st.sets(st.integers(0, number), min_size=1).map(sorted))]
    return history


@given(history=histories(), ordered=st.booleans(), damaged=st.booleans(), min_files=st.integers(1, 8))
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_look_with_the_memo_equals_a_cold_look_over_random_histories(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], ordered: bool, damaged: bool, min_files: int
) -> None:
    folder = tmp_path_factory.mktemp("history")
    table = TableFiles(folder / "t", SCHEMA, list(SPECS))
    cold, warm = catalogs(folder, min_files)
    listed: list[dict[str, Any]] = []
    for number, (manifest, chosen) in enumerate(zip(history[::2], history[1::2], strict=True)):
        listed.append(table.write_manifest(manifest, f"m{number}.avro"))
        entries = iter([listed[i] for i in chosen])
        table._write_manifest = lambda _, entries=entries: next(entries)  # type: ignore[method-assign]
        table.commit(
            [manifest] * len(chosen),
            snapshot_id=number + 11,
            sequence_number=number + 1,
            timestamp_ms=number + 1,
        )
        table.register(folder / "catalog.db", "db.events")
        state = replace(cold.pin(EVENTS), order=ORDER if ordered else None)
        expected = cold.measure(state, POLICY)
        assert warm.measure(state, POLICY) == expected
        assert warm.measure(state, POLICY) == expected
        for key in (*expected.partitions, "region=none"):
            assert _files(warm, state, key) == _files(cold, state, key)
        if damaged and (folder / "memo" / "manifests.db").exists():
            with closing(sqlite3.connect(folder / "memo" / "manifests.db")) as connection, connection:
                connection.execute(
                    "UPDATE entry SET body = substr(body, 2), partitions = substr(partitions, 2)"
                )


def _files(catalog: PyIcebergCatalog, state: Any, key: str) -> object:
    from iceberg_maint.errors import RefusedError

    try:
        return catalog.live_files(state, [key])
    except RefusedError as error:
        return str(error)
