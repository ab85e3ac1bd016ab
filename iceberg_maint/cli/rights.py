"""The command that prints policies of least privilege."""

from __future__ import annotations

import json
from typing import Any

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.core.policy.rights import OPERATION_ROLES, ROLE_RIGHTS, Role
from iceberg_maint.errors import ConfigurationError


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
    from iceberg_maint.config.access_policies import iam_policy, polaris_grants

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
    return 0
