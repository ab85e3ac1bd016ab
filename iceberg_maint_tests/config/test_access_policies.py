"""Policies of least privilege: each role has exactly the actions of its rights, on the catalog's locations only."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_maint.cli.rights import OPERATION_ROLES, ROLE_RIGHTS, Role, iam_policy, polaris_grants
from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.ports.catalog import Right


def catalog(kind: str, warehouse: str | None, approved: tuple[str, ...] | None = None) -> CatalogConfig:
    return CatalogConfig("lake", kind, None, warehouse, {}, approved)


def actions(policy: dict[str, Any] | None) -> set[str]:
    assert policy is not None
    return {action for statement in policy["Statement"] for action in statement["Action"]}


READ_GLUE = {"glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"}
WRITE_S3 = {"s3:PutObject", "s3:AbortMultipartUpload"}


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role.ADVISE, READ_GLUE | {"s3:GetObject"}),
        (Role.COMPACT, READ_GLUE | WRITE_S3 | {"s3:GetObject", "glue:UpdateTable"}),
        (
            Role.EXPIRE,
            READ_GLUE | WRITE_S3 | {"s3:GetObject", "s3:DeleteObject", "s3:ListBucket", "glue:UpdateTable"},
        ),
        (Role.COLLECT, READ_GLUE | WRITE_S3 | {"s3:GetObject", "s3:DeleteObject", "s3:ListBucket"}),
    ],
)
def test_iam_policy_of_a_glue_catalog_has_exactly_the_actions_of_the_role(
    role: Role, expected: set[str]
) -> None:
    assert actions(iam_policy(catalog("glue", "s3://bucket/warehouse/"), role)) == expected


def test_iam_policy_names_the_approved_locations_and_lists_below_them_only() -> None:
    approved = ("s3a://one/a#b", "s3://two", "file:///local")
    policy = iam_policy(catalog("jdbc", "s3://unused/w", approved), Role.COLLECT)
    assert policy is not None
    objects, first, second = policy["Statement"]
    assert objects["Resource"] == ["arn:aws:s3:::one/a#b/*", "arn:aws:s3:::two/*"]
    assert (first["Resource"], first["Condition"]) == (
        ["arn:aws:s3:::one"],
        {"StringLike": {"s3:prefix": ["a#b/*"]}},
    )
    assert (second["Resource"], second["Condition"]) == (
        ["arn:aws:s3:::two"],
        {"StringLike": {"s3:prefix": ["*"]}},
    )


def test_catalog_without_s3_and_glue_has_no_iam_policy() -> None:
    assert iam_policy(catalog("jdbc", "file:///w"), Role.EXPIRE) is None


@pytest.mark.parametrize(
    ("role", "privileges"),
    [
        (Role.ADVISE, ["NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES", "TABLE_READ_DATA"]),
        (
            Role.COMPACT,
            [
                "NAMESPACE_LIST",
                "TABLE_LIST",
                "TABLE_READ_PROPERTIES",
                "TABLE_READ_DATA",
                "TABLE_WRITE_DATA",
                "TABLE_WRITE_PROPERTIES",
            ],
        ),
    ],
)
def test_polaris_grants_are_commands_for_the_warehouse(role: Role, privileges: list[str]) -> None:
    created, *grants = polaris_grants(catalog("rest", "my lake"), role)
    name = f"iceberg_maint_{role.value}"
    assert created == f"polaris catalog-roles create --catalog 'my lake' {name}"
    head = f"polaris privileges catalog grant --catalog 'my lake' --catalog-role {name} "
    assert grants == [head + privilege for privilege in privileges]
    assert polaris_grants(catalog("hive", "my lake"), role) == ()


def test_every_operation_has_a_role_and_only_commits_need_the_right_to_commit() -> None:
    assert set(OPERATION_ROLES) == set(Operation)
    assert Right.COMMIT not in ROLE_RIGHTS[OPERATION_ROLES[Operation.REMOVE_ORPHAN_FILES]]
    assert all(Right.LOAD in rights for rights in ROLE_RIGHTS.values())
