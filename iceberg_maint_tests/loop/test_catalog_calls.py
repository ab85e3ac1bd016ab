"""The record of an operation has the calls of catalogs in its time."""

from __future__ import annotations

import itertools

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.loop.world import TABLE, Process, World

REWRITE = (Operation.REWRITE_DATA_FILES,)


def test_record_has_the_calls_from_the_start_of_the_operation_on() -> None:
    world = World()
    readings = itertools.count(100, 7)
    context = changed(world.context(Process()), catalog_calls=lambda: next(readings))
    maintain(TABLE, Request("run", operations=REWRITE), context)
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert record.catalog_calls == 7


def test_record_of_a_process_that_counts_no_calls_has_none() -> None:
    world = World()
    maintain(TABLE, Request("run", operations=REWRITE), world.context(Process()))
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert record.catalog_calls is None
