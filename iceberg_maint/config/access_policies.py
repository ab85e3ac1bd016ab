"""Policies of least privilege for a configured catalog: AWS IAM documents and grants of Apache Polaris, per role."""

from __future__ import annotations

import shlex
from typing import Any

from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.core.policy.rights import ROLE_RIGHTS, Right, Role

_S3 = ("s3", "s3a", "s3n")
_OBJECT_ACTIONS = {
    Right.GET: ("s3:GetObject",),
    Right.PUT: ("s3:PutObject", "s3:AbortMultipartUpload"),
    Right.DELETE: ("s3:DeleteObject",),
}
_GLUE_ACTIONS = {
    Right.LOAD: ("glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"),
    Right.COMMIT: ("glue:UpdateTable",),
}
# A Polaris principal that may write data is given credentials that list, read, write and delete.
_POLARIS_PRIVILEGES = {
    Right.LOAD: ("NAMESPACE_LIST", "TABLE_LIST", "TABLE_READ_PROPERTIES"),
    Right.LIST: ("TABLE_WRITE_DATA",),
    Right.GET: ("TABLE_READ_DATA",),
    Right.PUT: ("TABLE_WRITE_DATA",),
    Right.DELETE: ("TABLE_WRITE_DATA",),
    Right.COMMIT: ("TABLE_WRITE_PROPERTIES",),
}


def iam_policy(catalog: CatalogConfig, role: Role) -> dict[str, Any] | None:
    """Returns the AWS IAM policy of a role; None if the configuration names no S3 location of the catalog and the
    catalog is not Glue. The locations are the approved ones, else the warehouse."""
    places = _s3_places(catalog)
    rights = ROLE_RIGHTS[role]
    statements: list[dict[str, Any]] = []
    if catalog.type == "glue":
        actions = [action for right in rights for action in _GLUE_ACTIONS.get(right, ())]
        kinds = ("catalog", "database/*", "table/*/*")
        statements.append(_allow("Catalog", actions, [f"arn:aws:glue:*:*:{kind}" for kind in kinds]))
    objects = [action for right in rights for action in _OBJECT_ACTIONS.get(right, ())]
    if places:
        statements.append(_allow("Objects", objects, [f"arn:aws:s3:::{place}/*" for place in places]))
    if Right.LIST in rights:
        for number, place in enumerate(places):
            bucket, _, key = place.partition("/")
            prefixes = [f"{key}/*"] if key else ["*"]
            statements.append(
                _allow(f"Listing{number}", ["s3:ListBucket"], [f"arn:aws:s3:::{bucket}"])
                | {"Condition": {"StringLike": {"s3:prefix": prefixes}}}
            )
    return {"Version": "2012-10-17", "Statement": statements} if statements else None


def polaris_grants(catalog: CatalogConfig, role: Role) -> tuple[str, ...]:
    """Returns the commands of Polaris's command line that make the role's catalog role and its grants; none for a
    catalog that is not REST or that the configuration names no warehouse of."""
    if catalog.type != "rest" or catalog.warehouse is None:
        return ()
    of_catalog = f"--catalog {shlex.quote(catalog.warehouse)}"
    name = f"iceberg_maint_{role.value}"
    privileges = dict.fromkeys(p for right in ROLE_RIGHTS[role] for p in _POLARIS_PRIVILEGES[right])
    return (
        f"polaris catalog-roles create {of_catalog} {name}",
        *(f"polaris privileges catalog grant {of_catalog} --catalog-role {name} {p}" for p in privileges),
    )


def _s3_places(catalog: CatalogConfig) -> tuple[str, ...]:
    locations = catalog.approved_locations or ((catalog.warehouse,) if catalog.warehouse else ())
    parts = [location.partition("://") for location in locations]
    return tuple(dict.fromkeys(place.rstrip("/") for scheme, _, place in parts if scheme in _S3 and place))


def _allow(name: str, actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": resources}
