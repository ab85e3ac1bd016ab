"""The target sort order of a table's files, by policy and by the table itself."""

from __future__ import annotations

from collections.abc import Iterable

from iceberg_maint.core.model.columns import is_orderable
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn, TableState
from iceberg_maint.core.policy.data import LayoutPolicy

_IDENTITY = "identity"
_DESCENDING = " desc"


def target_sort_order(state: TableState, policy: LayoutPolicy) -> LayoutOrder | None:
    """Returns the order that the policy or the table requests. None if there is none, or if column bounds
    cannot show it, because it begins with a transform.

    Raises ValueError for a column in the policy that the table lacks or that has no order.
    """
    if not policy.enabled:
        return None
    own_columns = _own_columns(state)
    covers_own_order = len(own_columns) == len(state.sort_fields)
    if policy.z_order_by:
        columns = tuple(_sort_column(state, name, "layout.z_order_by") for name in policy.z_order_by)
    elif policy.sort_by:
        columns = tuple(_sort_column(state, name, "layout.sort_by") for name in policy.sort_by)
    else:
        columns = own_columns
    constant = _constant_in_partition(state)
    varying = tuple(c for c in columns if c.field_id not in constant)
    if not varying:
        return None
    if policy.z_order_by:
        # A z-order of one column is a sort.
        return LayoutOrder(varying, varying, z_order=len(varying) > 1)
    order_id = state.sort_order_id if covers_own_order and columns == own_columns else 0
    return LayoutOrder(columns, varying[:1], sort_order_id=order_id)


def _own_columns(state: TableState) -> tuple[SortColumn, ...]:
    """Returns the columns of the table's sort order, up to the first transformed one."""
    names = {field_id: name for name, field_id in state.column_ids.items()}
    columns: list[SortColumn] = []
    for f in state.sort_fields:
        kind = state.key_types.get(f.source_id, "")
        if f.transform != _IDENTITY or f.source_id not in names or not is_orderable(kind):
            break
        columns.append(SortColumn(names[f.source_id], f.source_id, kind, f.descending, f.nulls_last))
    return tuple(columns)


def _sort_column(state: TableState, text: str, key: str) -> SortColumn:
    name = text.removesuffix(_DESCENDING).strip()
    descending = text.endswith(_DESCENDING)
    field_id = state.column_ids.get(name)
    kind = state.key_types.get(field_id, "") if field_id is not None else ""
    if field_id is None or not is_orderable(kind):
        known_names = ", ".join(_first_names(state.column_ids))
        raise ValueError(
            f"{key} names '{name}', which is not a sortable column of the table. The sortable columns are {known_names}"
        )
    return SortColumn(name, field_id, kind, descending, nulls_last=descending)


def _first_names(names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    return ordered if len(ordered) <= 20 else [*ordered[:20], "…"]


def _constant_in_partition(state: TableState) -> frozenset[int]:
    spec = state.specs.get(state.current_spec_id)
    fields = spec.fields if spec is not None else ()
    return frozenset(f.source_id for f in fields if f.transform == _IDENTITY)
