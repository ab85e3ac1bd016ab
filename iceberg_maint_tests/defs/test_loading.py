"""Loading of definitions: no collection of garbage in it, and none of what it loaded."""

from __future__ import annotations

import gc

import pytest

from iceberg_maint.defs.load_definitions import keeping_all

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("enabled", [True, False])
def test_keeping_all_collects_nothing_in_the_block_and_freezes_what_it_made(*, enabled: bool) -> None:
    before, frozen = gc.isenabled(), gc.get_freeze_count()
    (gc.enable if enabled else gc.disable)()
    try:
        with keeping_all():
            inside = gc.isenabled()
            made = [[n] for n in range(1000)]
        assert (inside, gc.isenabled()) == (False, enabled)
        assert gc.get_freeze_count() - frozen >= len(made)
    finally:
        gc.unfreeze()
        (gc.enable if before else gc.disable)()


def test_keeping_all_enables_collections_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), keeping_all():
        raise ZeroDivisionError
    gc.unfreeze()
    assert gc.isenabled()
