"""The catalog port on real catalogs and tables written by PyIceberg."""

from __future__ import annotations

import gzip
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import ConfigurationError, RefusedError, UnknownTableError, UnreadableTableError
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.catalog.conftest import BY_REGION, EVENTS, ROWS, SCHEMA, sql_properties
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.seconds

POLICY = RewriteDataFilesPolicy()


def test_tables_are_sorted_without_views_and_other_catalogs(
    tmp_path: Path, writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    writer.create_namespace("db.deep")
    for name in ("db.z", "db.a", "db.deep.m"):
        writer.create_table(name, SCHEMA)
    add_row(tmp_path, "lake", "v", "VIEW")
    add_row(tmp_path, "other", "t", "TABLE")
    assert [str(t) for t in catalog.tables()] == ["lake.db.a", "lake.db.z", "lake.db.deep.m"]
    assert catalog.pointers([TableId.parse("lake.db.v")]) == {}


def add_row(folder: Path, catalog_name: str, name: str, kind: str) -> None:
    with sqlite3.connect(folder / "catalog.db") as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")]
        if "iceberg_type" not in columns:
            connection.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location,"
            " iceberg_type) VALUES (?, 'db', ?, 'file:///x', ?)",
            (catalog_name, name, kind),
        )
    connection.close()


def test_tables_of_a_catalog_made_before_views_are_listed(tmp_path: Path, catalog: PyIcebergCatalog) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute(
            "CREATE TABLE iceberg_tables (catalog_name TEXT, table_namespace TEXT, table_name TEXT,"
            " metadata_location TEXT, previous_metadata_location TEXT)"
        )
        connection.execute("INSERT INTO iceberg_tables VALUES ('lake', 'db', 't', 'file:///x', NULL)")
    connection.close()
    assert [str(t) for t in catalog.tables()] == ["lake.db.t"]


def test_pointers_change_with_each_commit_and_leave_out_what_is_gone(
    events: Table, writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    gone = TableId.parse("lake.db.gone")
    before = catalog.pointers([EVENTS, gone])
    assert before == {EVENTS: events.metadata_location}
    events.append(ROWS)
    assert catalog.pointers([EVENTS]) == {EVENTS: events.metadata_location} != before
    writer.drop_table("db.events")
    assert catalog.pointers([EVENTS]) == {}


@pytest.mark.parametrize("packed", [False, True])
def test_metadata_files_of_the_table_are_read_as_they_were(
    tmp_path: Path, events: Table, catalog: PyIcebergCatalog, packed: bool
) -> None:
    first = events.metadata_location
    events.append(ROWS)
    log = catalog.metadata_document(EVENTS, events.metadata_location)["metadata-log"]
    assert [entry["metadata-file"] for entry in log][-1] == first
    file = Path(first.removeprefix("file://"))
    if packed:
        file.write_bytes(gzip.compress(file.read_bytes()))
    before = catalog.metadata_document(EVENTS, first)
    assert before["table-uuid"] == str(events.metadata.table_uuid)
    assert before == json.loads(gzip.decompress(file.read_bytes()) if packed else file.read_bytes())


def test_metadata_file_that_cannot_be_read_is_refused(events: Table, catalog: PyIcebergCatalog) -> None:
    file = Path(events.metadata_location.removeprefix("file://"))
    for content in (b"[]", b"{", b""):
        file.write_bytes(content)
        with pytest.raises(
            UnreadableTableError, match=r"ICM-101 cannot load lake.db.events: .* is not table"
        ):
            catalog.metadata_document(EVENTS, events.metadata_location)
    file.unlink()
    with pytest.raises(UnreadableTableError, match=r"metadata file .* is missing"):
        catalog.metadata_document(EVENTS, events.metadata_location)


def test_catalog_is_not_reached_before_first_use_and_never_made(tmp_path: Path) -> None:
    catalog = PyIcebergCatalog("lake", sql_properties(tmp_path / "none"))
    with pytest.raises(
        ConfigurationError, match=r"cannot be reached: .*catalog.db does not exist"
    ) as refused:
        catalog.tables()
    assert refused.value.code == "ICM-104"
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigurationError, match="does not exist"):
        catalog.tables()
    assert not (tmp_path / "none" / "catalog.db").exists()
    (tmp_path / "empty.db").touch()
    empty = PyIcebergCatalog("lake", {"type": "sql", "uri": f"sqlite:///{tmp_path / 'empty.db'}"})
    with pytest.raises(
        ConfigurationError, match=r"has no table iceberg_tables, .*set catalogs.lake.uri to the database"
    ):
        empty.tables()


def test_names_of_catalogs_in_a_database_are_listed(
    tmp_path: Path, events: Table, catalog: PyIcebergCatalog
) -> None:
    uri = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}
    other = PyIcebergCatalog("prod", uri)
    assert (other.tables(), other.stored_names()) == ((), ("lake",))
    assert catalog.stored_names() == ("lake",)


def test_catalog_file_that_was_replaced_is_read_again(
    tmp_path: Path, events: Table, catalog: PyIcebergCatalog
) -> None:
    assert catalog.tables() == (EVENTS,)
    (tmp_path / "catalog.db").rename(tmp_path / "old.db")
    TableFiles(tmp_path / "t", SCHEMA, [BY_REGION]).register(tmp_path / "catalog.db", "db.other")
    assert [str(t) for t in catalog.tables()] == ["lake.db.other"]


def test_catalog_file_that_was_removed_is_refused_after_it_was_read(
    tmp_path: Path, events: Table, catalog: PyIcebergCatalog
) -> None:
    assert catalog.tables() == (EVENTS,)
    (tmp_path / "catalog.db").unlink()
    with pytest.raises(ConfigurationError, match=r"catalog\.db does not exist") as refused:
        catalog.pointer(EVENTS)
    assert refused.value.code == "ICM-104"


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": "postgresql+psycopg2://me:hush@127.0.0.1:1/db"},
        {"type": "rest", "uri": "http://me:hush@127.0.0.1:1"},
        {"type": "hive", "uri": "thrift://127.0.0.1:1"},
    ],
    ids=["postgresql", "rest", "hive"],
)
def test_catalog_that_is_down_is_refused_in_one_line_without_its_password(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"catalog 'lake' at .* cannot be reached") as refused:
        PyIcebergCatalog("lake", properties).tables()
    assert refused.value.code == "ICM-104"
    assert "hush" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rest_catalog_that_is_down_is_refused_with_the_error_of_the_system() -> None:
    with pytest.raises(ConfigurationError) as refused:
        PyIcebergCatalog("lake", {"type": "rest", "uri": "http://127.0.0.1:1"}).tables()
    assert str(refused.value) == (
        "ICM-104 catalog 'lake' at http://127.0.0.1:1 cannot be reached: Connection refused. Fix: check the address "
        "and the credentials, and start the service if it does not run."
    )


def test_pin_says_what_pyiceberg_says(events: Table, catalog: PyIcebergCatalog) -> None:
    events.manage_snapshots().create_tag(events.snapshots()[0].snapshot_id, "first").commit()
    state, metadata = catalog.pin(EVENTS), events.refresh().metadata
    assert state.uuid == str(metadata.table_uuid)
    assert state.metadata_location == events.metadata_location
    assert state.last_sequence_number == metadata.last_sequence_number
    assert state.snapshot.snapshot_id == metadata.current_snapshot_id
    assert [s.snapshot_id for s in state.snapshots] == [s.snapshot_id for s in metadata.snapshots]
    assert [s.operation for s in state.snapshots] == [s.summary.operation.value for s in metadata.snapshots]
    assert {r.name: (r.kind, r.snapshot_id) for r in state.refs} == {
        name: (ref.snapshot_ref_type.value, ref.snapshot_id) for name, ref in metadata.refs.items()
    }
    assert [f.name for f in state.specs[0].fields] == ["region"]
    assert {m.path: m.length_bytes for m in state.manifests} == {
        m.manifest_path: m.manifest_length for m in events.current_snapshot().manifests(events.io)
    }


def test_pin_of_a_table_without_snapshot_is_empty_and_measures_as_such(
    writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    writer.create_table("db.events", SCHEMA)
    state = catalog.pin(EVENTS)
    measured = catalog.measure(state, POLICY)
    assert (state.snapshot, state.manifests, measured.partitions) == (None, (), {})
    assert measured.table_health.metadata_bytes == state.metadata_bytes > 0
    assert catalog.live_files(state, ["__all__"]) == ()
    assert catalog.find_live(state, ["x"]) == frozenset()


@pytest.mark.parametrize(
    "name", ["lake.db.gone", "other.db.events", "lake.db.'; drop table iceberg_tables; --"]
)
def test_pin_of_an_unknown_table_is_refused(events: Table, catalog: PyIcebergCatalog, name: str) -> None:
    with pytest.raises(UnknownTableError) as refused:
        catalog.pin(TableId.parse(name))
    assert refused.value.code == "ICM-126"
    assert f'"{name}" is not a table of catalog lake' in str(refused.value)
    assert catalog.tables() == (EVENTS,)


@pytest.mark.parametrize("name", ["..", "a.b", "events."])
def test_name_that_may_mean_another_table_is_refused(
    writer: SqlCatalog, catalog: PyIcebergCatalog, name: str
) -> None:
    writer.create_table(("db", name), SCHEMA)
    [table] = catalog.tables()
    with pytest.raises(RefusedError, match="has an empty part or a dot within a part") as refused:
        catalog.pin(table)
    assert refused.value.code == "ICM-156"


def test_name_with_a_dot_within_a_part_is_found_and_not_offered_as_a_guess_at_itself(
    tmp_path: Path, writer: SqlCatalog, catalog: PyIcebergCatalog
) -> None:
    writer.create_table(("db", "a.b"), SCHEMA)
    file = tmp_path / "maint.yaml"
    connection = f"type: jdbc, uri: 'sqlite:///{tmp_path}/catalog.db', warehouse: 'file://{tmp_path}'"
    file.write_text(f"ledger: 'sqlite:///{tmp_path}/l.db'\ncatalogs:\n  lake: {{{connection}}}\n")
    assert load(file).catalogs.find("lake.db.a.b") == TableId("lake", ("db",), "a.b")


def test_manifests_that_contradict_the_metadata_are_refused(events: Table, catalog: PyIcebergCatalog) -> None:
    path = Path(events.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    [partitioning] = document["partition-specs"]
    partitioning["fields"] *= 2
    path.write_text(json.dumps(document))
    state = catalog.pin(EVENTS)
    for read in (lambda: catalog.measure(state, POLICY), lambda: catalog.live_files(state, ())):
        with pytest.raises(UnreadableTableError, match="its metadata and manifests contradict each other"):
            read()


def test_pin_of_a_table_whose_metadata_is_gone_is_refused(events: Table, catalog: PyIcebergCatalog) -> None:
    Path(events.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(
        UnreadableTableError, match=r"cannot load lake\.db\.events: metadata file .* is missing"
    ) as refused:
        catalog.pin(EVENTS)
    assert refused.value.code == "ICM-101"


def test_pin_starts_over_when_a_commit_moved_the_table(
    events: Table, catalog: PyIcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = catalog._listing.open
    stale = [(events.metadata_location, real(EVENTS)[1])]
    events.append(ROWS)
    Path(stale[0][0].removeprefix("file://")).unlink()
    monkeypatch.setattr(catalog._listing, "open", lambda table: stale.pop() if stale else real(table))
    assert catalog.pin(EVENTS).metadata_location == events.metadata_location


def test_pin_of_a_table_that_moves_at_each_look_ends_with_the_third_read(
    events: Table, catalog: PyIcebergCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks, [io] = iter(range(100)), [catalog.io_of(EVENTS)]
    monkeypatch.setattr(catalog._listing, "open", lambda _table: (f"{tmp_path}/{next(looks)}.json", io))
    with pytest.raises(UnreadableTableError, match=r"metadata file \S*/4\.json is missing"):
        catalog.pin(EVENTS)


def test_known_state_is_returned_only_while_the_catalog_names_its_metadata_file(
    events: Table, catalog: PyIcebergCatalog
) -> None:
    known = catalog.pin(EVENTS)
    assert catalog.pin(EVENTS, known) is known
    events.append(ROWS)
    moved = catalog.pin(EVENTS, known)
    assert moved.metadata_location == events.metadata_location != known.metadata_location
    assert moved.snapshot is not None
    assert moved.snapshot.snapshot_id == events.current_snapshot().snapshot_id


def test_known_state_of_another_table_is_not_returned(events: Table, catalog: PyIcebergCatalog) -> None:
    known = catalog.pin(EVENTS)
    other = replace(known, table=TableId.parse("lake.db.other"))
    assert catalog.pin(EVENTS, other) == known


def test_table_that_is_gone_has_no_known_state(catalog: PyIcebergCatalog, events: Table) -> None:
    known = catalog.pin(EVENTS)
    events.catalog.drop_table("db.events")
    with pytest.raises(UnknownTableError) as refused:
        catalog.pin(EVENTS, known)
    assert refused.value.code == "ICM-126"


def service_properties(folder: Path) -> dict[str, str]:
    """Those of a catalog through PyIceberg's client. In memory, SQLite has one database for each thread."""
    return {"type": "in-memory", "warehouse": folder.as_uri(), "uri": f"sqlite:///{folder}/service.db"}


def test_service_catalog_lists_nested_namespaces_pins_and_reports_gone_tables(tmp_path: Path) -> None:
    catalog = PyIcebergCatalog("lake", service_properties(tmp_path))
    behind = catalog._listing._catalog
    for namespace in ("db", "db.deep", "empty"):
        behind.create_namespace(namespace)
    table = behind.create_table("db.deep.t", SCHEMA)
    table.append(ROWS)
    name = TableId.parse("lake.db.deep.t")
    assert catalog.tables() == (name,)
    assert catalog.pointers([name, EVENTS]) == {name: table.metadata_location}
    assert catalog.pin(name).snapshot.snapshot_id == table.current_snapshot().snapshot_id
    with pytest.raises(UnknownTableError):
        catalog.pin(EVENTS)
    behind.engine.dispose()


def test_service_catalog_with_a_broken_table_still_lists_the_others(tmp_path: Path) -> None:
    catalog = PyIcebergCatalog("lake", service_properties(tmp_path))
    behind = catalog._listing._catalog
    behind.create_namespace("db")
    good, broken = (behind.create_table(f"db.{name}", SCHEMA) for name in ("good", "broken"))
    Path(broken.metadata_location.removeprefix("file://")).unlink()
    names = [TableId.parse("lake.db.good"), TableId.parse("lake.db.broken")]
    assert catalog.pointers(names) == {names[0]: good.metadata_location}
    with pytest.raises(UnreadableTableError, match=r"^ICM-101 cannot load lake\.db\.broken: "):
        catalog.pin(names[1])
    behind.engine.dispose()


@pytest.mark.variant
def test_service_catalog_whose_store_does_not_answer_names_the_environment(tmp_path: Path) -> None:
    """Hive's and Glue's client reads the metadata file itself."""
    s3 = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "r", "s3.access-key-id": "k"}
    s3 |= {"s3.secret-access-key": "s", "s3.connect-timeout": "0.1"}
    catalog = PyIcebergCatalog("lake", {"type": "in-memory", "warehouse": tmp_path.as_uri(), **s3})
    behind = catalog._listing._catalog
    behind.create_namespace("db")
    behind.create_table("db.events", SCHEMA)
    with behind.engine.begin() as connection:
        connection.execute(sa.text("UPDATE iceberg_tables SET metadata_location = 's3://b/v1.metadata.json'"))
    with pytest.raises(UnreadableTableError, match=r"^ICM-133 cannot load lake\.db\.events: "):
        catalog.pin(EVENTS)
    behind.engine.dispose()


def test_rest_catalog_lists_nested_namespaces_without_views_and_pins(tmp_path: Path) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    table.commit(
        [ManifestFile((File("a", ("eu",)),), BY_REGION, 1, 11)],
        snapshot_id=11,
        sequence_number=1,
        timestamp_ms=1,
    )
    location = table.register(tmp_path / "catalog.db", "db.events")
    table.register(tmp_path / "catalog.db", "db.deep.er.t")
    add_row(tmp_path, "lake", "v", "VIEW")
    with serving(RestServer(tmp_path / "catalog.db")) as url:
        catalog = PyIcebergCatalog("lake", {"type": "rest", "uri": url})
        assert [str(t) for t in catalog.tables()] == ["lake.db.events", "lake.db.deep.er.t"]
        assert catalog.pointers([EVENTS, TableId.parse("lake.db.v")]) == {EVENTS: location}
        state = catalog.pin(EVENTS)
        assert catalog.measure(state, POLICY).partitions["region=eu"].data_files == 1
        assert [f.path for f in catalog.live_files(state, ["region=eu"])] == ["a"]
        with pytest.raises(UnknownTableError):
            catalog.pin(TableId.parse("lake.db.v"))


@pytest.mark.parametrize("kind", ["variant", "geometry(srid:3857)", "geography(srid:4326, karney)"])
def test_rest_catalog_pins_a_table_with_types_that_pyiceberg_does_not_parse(
    tmp_path: Path, kind: str
) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    location = table.register(tmp_path / "catalog.db", "db.events")
    file = Path(location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    fields = metadata["schemas"][0]["fields"]
    listed = {"type": "list", "element-id": 98, "element": kind, "element-required": False}
    fields += [
        {"id": 97, "name": "at", "required": False, "type": kind},
        {"id": 99, "name": "l", "required": False, "type": listed},
    ]
    file.write_text(json.dumps(metadata))
    with serving(RestServer(tmp_path / "catalog.db")) as url:
        state = PyIcebergCatalog("lake", {"type": "rest", "uri": url}).pin(EVENTS)
    assert state.uncommon_types == {"at": kind, "l.element": kind}


def test_rest_catalog_that_denies_is_refused_with_its_reason() -> None:
    with (
        serving(RestServer(None, denies=True)) as url,
        pytest.raises(ConfigurationError, match="NotAuthorizedException: who are you"),
    ):
        PyIcebergCatalog("lake", {"type": "rest", "uri": url}).tables()


@pytest.mark.postgres
def test_catalog_on_postgresql_lists_and_pins(tmp_path: Path, postgres_url: str) -> None:
    writer = SqlCatalog("pg_lake", uri=postgres_url, warehouse=tmp_path.as_uri())
    writer.create_namespace("db")
    table = writer.create_table("db.events", SCHEMA, partition_spec=BY_REGION)
    table.append(ROWS)
    catalog = PyIcebergCatalog(
        "pg_lake", {"type": "sql", "uri": postgres_url, "warehouse": tmp_path.as_uri()}
    )
    name = TableId.parse("pg_lake.db.events")
    assert catalog.tables() == (name,)
    assert catalog.pointers([name]) == {name: table.metadata_location}
    assert set(catalog.measure(catalog.pin(name), POLICY).partitions) == {"region=eu", "region=us", "region"}
    writer.destroy_tables()
    writer.engine.dispose()


@pytest.mark.parametrize(
    ("kind", "compares"), [("sql", True), ("hive", True), ("glue", True), ("rest", False)]
)
def test_catalog_compares_what_a_commit_is_based_on_unless_it_is_rest(kind: str, compares: bool) -> None:
    """Iceberg's UpdateRequirements name nothing of the snapshots and refs that a request removes."""
    catalog = PyIcebergCatalog("lake", {"type": kind, "uri": "sqlite:///none.db"})
    assert catalog.checks_commit_base is compares


@pytest.mark.parametrize(("kind", "asks"), [("sql", False), ("hive", True), ("glue", True), ("rest", True)])
def test_service_is_asked_for_each_table_and_a_database_for_all_at_once(kind: str, asks: bool) -> None:
    assert PyIcebergCatalog("lake", {"type": kind, "uri": "sqlite:///none.db"}).asks_each_table is asks
