"""The command `rights`: what each role needs, as AWS IAM documents and grants of Apache Polaris."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from typing import Any

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.errors import EXIT_DONE, ConfigurationError
from iceberg_maint.ports.catalog import Right


class Role(StrEnum):
    """A principal that does one kind of work: `advise` measures and plans, `compact` works on data and manifests,
    `expire` on snapshots, and `collect` on orphan files."""

    ADVISE = "advise"
    COMPACT = "compact"
    EXPIRE = "expire"
    COLLECT = "collect"


ROLE_RIGHTS: dict[Role, tuple[Right, ...]] = {
    Role.ADVISE: (Right.LOAD, Right.GET),
    # What a dead attempt wrote stays for the orphan scan, so a rewrite deletes nothing.
    Role.COMPACT: (Right.LOAD, Right.GET, Right.PUT, Right.COMMIT),
    # Released files go to the trash by copy and delete; the store's clock comes from a file that is written and removed.
    Role.EXPIRE: (Right.LOAD, Right.LIST, Right.GET, Right.PUT, Right.DELETE, Right.COMMIT),
    # Orphan files go to the trash likewise. Nothing is committed.
    Role.COLLECT: (Right.LOAD, Right.LIST, Right.GET, Right.PUT, Right.DELETE),
}

OPERATION_ROLES: dict[Operation, Role] = {
    **dict.fromkeys(DATA_OPERATIONS, Role.COMPACT),
    Operation.REWRITE_MANIFESTS: Role.COMPACT,
    Operation.EXPIRE_SNAPSHOTS: Role.EXPIRE,
    Operation.REMOVE_ORPHAN_FILES: Role.COLLECT,
}


@click.command()
@click.argument("name", metavar="[CATALOG]", required=False)
@click.option(
    "--role",
    "chosen",
    type=click.Choice([r.value for r in Role]),
    multiple=True,
    help="Only this role; may be repeated.",
)
@command
def rights(session: Session, name: str | None, chosen: tuple[str, ...]) -> int:
    """Print what each role needs: rights, AWS IAM policy, grants of Apache Polaris. Connects to nothing.

    Without CATALOG for every configured catalog. The locations are approved_locations, else the warehouse.
    """

    catalogs = session.config().catalogs
    if name is not None and name not in catalogs:
        raise ConfigurationError(
            "ICM-100",
            f"'{name}' is not a configured catalog. There are {', '.join(catalogs)}.",
            "name a catalog of the configuration.",
        )
    roles = [Role(value) for value in chosen] or list(Role)
    shown: list[dict[str, Any]] = [
        {
            "catalog": catalog,
            "role": role.value,
            "operations": [o.value for o, r in OPERATION_ROLES.items() if r is role],
            "rights": [right.value for right in ROLE_RIGHTS[role]],
            "iam_policy": iam_policy(catalogs[catalog], role),
            "polaris_grants": list(polaris_grants(catalogs[catalog], role)),
        }
        for catalog in ([name] if name is not None else catalogs)
        for role in roles
    ]

    def draw(console: Any) -> None:
        for entry in shown:
            needs = ", ".join(entry["rights"])
            lines = [f"{entry['catalog']}, role {entry['role']}: {needs}"]
            if entry["iam_policy"] is not None:
                lines += ["AWS IAM policy:", json.dumps(entry["iam_policy"], indent=2)]
            if entry["polaris_grants"]:
                lines += ["Grants of Apache Polaris:", *entry["polaris_grants"]]
            if len(lines) == 1:
                lines.append(
                    "No policy: the configuration names nothing that this role needs rights on: no S3 location, no Glue. "
                    f"Fix: set catalogs.{entry['catalog']}.approved_locations, or its warehouse."
                )
            for line in lines:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            console.print()

    session.emit({"roles": shown}, draw)
    return EXIT_DONE


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
