"""How a rewrite is written: row groups with which a scan keeps its tasks, and a shuffle only to another spec."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.engines.spark.rewrite.bin_pack import row_group_bytes, with_row_groups
from iceberg_maint_tests.support.ledger.values import make_batch

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("input_mib", "parallelism", "table_mib", "wanted_mib"),
    [
        (1024, 4, 128, 128),  # enough row groups of the table's own size
        (256, 4, 128, 64),
        (60, 4, 128, 15),
        (20, 8, 128, 8),  # smaller ones would only be read together
        (60, 4, 4, 4),  # never above the table's
        (60, 0, 128, 60),
    ],
)
def test_row_groups_are_a_share_for_every_task(
    input_mib: int, parallelism: int, table_mib: int, wanted_mib: int
) -> None:
    assert row_group_bytes(input_mib * MIB, parallelism, table_mib * MIB) == wanted_mib * MIB


@pytest.mark.parametrize(("input_mib", "table_mib"), [(60, 4), (8, 128)])
def test_table_is_written_with_its_own_row_groups_if_smaller_ones_would_not_help(
    input_mib: int, table_mib: int
) -> None:
    encryption = SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: "PlaintextEncryptionManager")
    )
    properties = SimpleNamespace(getOrDefault=lambda _name, _default: str(table_mib * MIB))
    table = SimpleNamespace(encryption=lambda: encryption, properties=lambda: properties)
    bridge: Any = SimpleNamespace(parallelism=4)
    assert with_row_groups(bridge, table, input_mib * MIB) is table


@pytest.mark.parametrize(
    ("output_spec_id", "expected"),
    [
        (0, {"distribution-mode": "none", "use-table-distribution-and-ordering": "false"}),
        (1, {"distribution-mode": "hash"}),
    ],
)
def test_write_shuffles_rows_only_to_the_partitions_of_another_spec(
    output_spec_id: int, expected: dict[str, str]
) -> None:
    class Writer(dict[str, str]):
        def option(self, name: str, value: str) -> Writer:
            self[name] = value
            return self

        def save(self, path: str) -> None:
            assert path == "group"

    writer: Any = Writer()
    bridge: Any = SimpleNamespace(is_spark_3=False)
    batch = make_batch("day=1")
    group = replace(batch.groups[0], output_spec_id=output_spec_id)
    bin_pack._write(bridge, writer, batch, group, "group", RewriteDataFilesPolicy())
    assert writer.pop("target-file-size-bytes").isdecimal()
    assert writer == {"output-spec-id": str(output_spec_id), **expected}
