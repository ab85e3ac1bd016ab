"""Positions: gathered exactly, written by Iceberg's writers in the place of their data file, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.jvm.conversion import content_json, local_frame
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint_tests.support.columnar.damage import checksums
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.positions")
    return made


def test_gather_finds_every_position_once(shop: Workshop) -> None:
    expected = {
        "file:/a": BitMap64([0, 1, 32767, 32768, 65536, 99_999, (1 << 33) + 7]),
        "file:/b": BitMap64(range(3, 100_000, 3)),
    }
    paths = ["file:/a", "file:/none", "file:/b"]
    found = [(path, int(p)) for path, all_of in expected.items() for p in all_of]
    rows = local_frame(shop.bridge, "_file string, _pos long", found + found[-10:])
    assert positions.gather(shop.bridge, rows, paths, 3) == expected


@pytest.mark.parametrize("found", [[0], [5, 70_000, 1 << 34], range(0, 200_000, 2), range(1000, 90_000)])
def test_blob_is_read_by_iceberg_and_iceberg_s_is_read(shop: Workshop, found: Any) -> None:
    wanted = BitMap64(found)
    index = positions.position_index(shop.bridge, "file:/a", wanted)
    assert int(index.cardinality()) == len(wanted)
    assert index.isDeleted(wanted.max())
    assert positions.parse(bytes(index.serialize().array())) == wanted


def test_parse_of_a_damaged_blob_is_refused() -> None:
    content = bytearray(positions.blob(BitMap64([1, 2])))
    content[-6] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        positions.parse(bytes(content))
    with pytest.raises(ValueError, match="no deletion vector"):
        positions.parse(b"\0" * 16)


def test_fingerprint_distinguishes_files_and_positions_and_adds_up() -> None:
    a, b = {"x": BitMap64([1, 2])}, {"y": BitMap64([1])}
    assert positions.fingerprint(a) + positions.fingerprint(b) == positions.fingerprint({**a, **b})
    assert positions.fingerprint({"x": BitMap64([1]), "y": BitMap64([1, 2])}) != positions.fingerprint(
        {**a, **b}
    )


def evolved(shop: Workshop, version: int) -> tuple[str, dict[str, Any]]:
    """An unpartitioned file of the first spec and two partitions of the second."""
    name = shop.new_name("positions")
    shop.writers.append(shop.writers.create(name, version=version), [{"id": i, "v": "x"} for i in range(5)])
    shop.sql(f"alter table {name} add partition field v")
    table = shop.writers.load(name)
    for value in ("x", None):
        shop.writers.append(table, [{"id": i, "v": value} for i in range(5)], table.spec(), [value])
    return name, {str(f.location()): f for f in shop.writers.files(shop.writers.load(name))}


@pytest.mark.parametrize("version", [2, 3])
def test_write_every_data_file_gets_one_delete_file_in_its_own_partition(
    shop: Workshop, version: int
) -> None:
    name, files = evolved(shop, version)
    wanted = {path: BitMap64([n, 4]) for n, path in enumerate(files)}
    table = shop.writers.load(name)
    write = positions.write_deletion_vectors if version == 3 else positions.write_position_deletes
    deletes = write(shop.bridge, table, wanted, files)
    assert {str(d.referencedDataFile()) for d in deletes} == set(files)
    for delete in deletes:
        file = files[str(delete.referencedDataFile())]
        assert (delete.specId(), delete.partition().toString()) == (
            file.specId(),
            file.partition().toString(),
        )
        assert int(delete.recordCount()) == 2
    assert len({str(d.location()) for d in deletes}) == (1 if version == 3 else 3)
    assert positions.read_back(shop.bridge, table, deletes) == wanted
    delta = table.newRowDelta()
    for delete in deletes:
        delta.addDeletes(delete)
    delta.commit()
    assert len(shop.writers.rows(name)) == 15 - 6
    assert len(shop.rows(name)) == 15 - 6


def test_position_delete_file_of_arrow_is_described_as_that_of_iceberg(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, files = evolved(shop, 2)
    table = shop.writers.load(name)
    wanted = {path: BitMap64([n, 4, 70_000 + n]) for n, path in enumerate(files)}
    described = []
    for most in (positions.MOST_POSITIONS, 0):
        monkeypatch.setattr(positions, "MOST_POSITIONS", most)
        written = positions.write_position_deletes(shop.bridge, table, wanted, files)
        assert positions.read_back(shop.bridge, table, written) == wanted
        described.append([json.loads(content_json(shop.bridge, table, f)) for f in written])
    of_arrow, of_iceberg = described
    paths = [d[0]["file-path"].removeprefix("file:") for d in (of_arrow, of_iceberg)]
    creators = [pq.read_metadata(path).created_by.split()[0] for path in paths]
    assert creators == ["parquet-cpp-arrow", "parquet-mr"]
    assert [set(checksums(path)) for path in paths] == [{True}, {True}]
    for ours, theirs in zip(of_arrow, of_iceberg, strict=True):
        for size in ("file-size-in-bytes", "column-sizes", "file-path"):
            del ours[size], theirs[size]
        assert ours == theirs


@pytest.mark.parametrize("format_name", ["avro", "orc"])
def test_write_position_deletes_in_the_format_of_the_table(shop: Workshop, format_name: str) -> None:
    name = shop.new_name("positions")
    table = shop.writers.create(name, properties={"write.format.default": format_name})
    file = shop.writers.append(table, [{"id": i, "v": "x"} for i in range(5)])
    wanted = {str(file.location()): BitMap64([0, 3])}
    [delete] = positions.write_position_deletes(shop.bridge, table, wanted, {str(file.location()): file})
    assert str(delete.location()).endswith(format_name)
    assert positions.read_back(shop.bridge, table, [delete]) == wanted


def test_difference_names_the_file_and_both_counts() -> None:
    wanted = {"a": BitMap64([1]), "b": BitMap64([1, 2, 3])}
    assert positions.difference(wanted, dict(wanted)) == ""
    found = {"a": BitMap64([1]), "b": BitMap64([2])}
    assert positions.difference(wanted, found) == (
        "3 positions of b were to be deleted, 1 are in the files written, 1 are the same"
    )
    assert "of c were" in positions.difference(wanted, {**wanted, "c": BitMap64([9])})
