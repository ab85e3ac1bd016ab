"""Page splices of files of any size. Generated files have few rows, so no task would copy a page: in this process, the least
sizes are lowered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iceberg_maint.columnar import rewrite
from iceberg_maint.columnar.splice import page_splice
from iceberg_maint.columnar.splice.splice_rules import spliceable
from iceberg_maint.columnar.task import RewriteResult, RewriteTask

NONE, PAGES, ROW_GROUPS = range(3)


@contextmanager
def splices(mode: int, counts: Counter[str]) -> Iterator[None]:
    """Tasks of this process copy the pages of plain columns (PAGES), or keep the row group of each file (ROW_GROUPS). Counts the
    tasks that did."""
    if mode == NONE:
        yield
        return
    spliced_result = page_splice.spliced_result

    def counted(task: RewriteTask) -> RewriteResult | None:
        result = spliced_result(task)
        counts["tasks spliced"] += result is not None
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "spliced_result", counted)
        patch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
        patch.setattr(page_splice, "_SHARE", 0.0)
        patch.setattr(page_splice, "LEAST_GROUP_BYTES", 1 if mode == ROW_GROUPS else 1 << 40)
        patch.setattr(page_splice, "MIN_ROWS_PER_PAGE", 1)
        patch.setattr(spliceable, "__defaults__", (1,))
        yield
