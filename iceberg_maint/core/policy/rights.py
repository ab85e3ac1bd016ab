"""Rights: what a role of the program needs from the catalog and from the storage. One role per kind of work."""

from __future__ import annotations

from enum import StrEnum

from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation


class Right(StrEnum):
    """A right on the tables of a catalog. `load` and `commit` are rights of the catalog, the others of the storage."""

    LOAD = "load"
    LIST = "list"
    GET = "get"
    PUT = "put"
    DELETE = "delete"
    COMMIT = "commit"


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
