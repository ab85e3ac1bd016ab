"""Requirements of a commit to a REST catalog."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.commits.table_rules import TableIds, impossible_requirements, requirements_of

BASE = TableIds("u", 2, 1, 9, 3, 1004, 5, {"main": 7, "audit": 6})
OF_THE_TABLE = [
    {"type": "assert-table-uuid", "uuid": "u"},
    {"type": "assert-current-schema-id", "current-schema-id": 1},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9},
    {"type": "assert-default-spec-id", "default-spec-id": 3},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 5},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1004},
]


def test_commit_requires_the_ids_of_its_base() -> None:
    assert requirements_of(BASE) == OF_THE_TABLE


def test_expiry_requires_every_known_ref() -> None:
    assert requirements_of(BASE, BASE.refs)[len(OF_THE_TABLE) :] == [
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 6},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7},
    ]


def test_partition_id_of_format_v1_is_not_required() -> None:
    assert requirements_of(replace(BASE, format_version=1)) == OF_THE_TABLE[:-1]


def test_impossible_requirements_have_every_type() -> None:
    types = {requirement["type"] for requirement in requirements_of(BASE, BASE.refs)}
    assert {requirement["type"] for requirement in impossible_requirements()} == types
