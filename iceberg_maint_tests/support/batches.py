"""Batches with other work than was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iceberg_maint.core.planning.plan import Batch


def with_work(batch: Batch, **changes: Any) -> Batch:
    """The batch, with fields of its work replaced."""
    work: Any = batch.work
    return replace(batch, work=replace(work, **changes))
