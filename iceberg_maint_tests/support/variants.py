"""Which variants of a test `make test` leaves to `make qualify SUITE=variants`.

A parametrized test goes through versions, routes, seeds and places. Where one variant costs seconds, a mark says how many of
them `make test` runs: `drawn(2)`. They are drawn by the names of the tests: other versions and routes for each test. A change that breaks only a variant
that was not drawn is rare, and `make qualify SUITE=variants` finds it.

A variant that alone kills a mutant is named, and is always among them: `drawn(15, always=("writers",))`.

A test, or one of its parameters, has the mark `variant` itself if a cheaper test goes through the same code.
"""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

import pytest


class Variants:
    """Marks the variants that are not drawn, before `-m` selects."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_test: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            by_test[item.nodeid.partition("[")[0]].append(item)
        for variants in by_test.values():
            for item in not_drawn(variants):
                item.add_marker(pytest.mark.variant)


def not_drawn(variants: list[pytest.Item]) -> list[pytest.Item]:
    """The variants of a test that `make test` does not run: all but those that are always drawn, and those with the
    smallest checksums of their names. It draws from those without the mark `variant`."""
    mark = variants[0].get_closest_marker("drawn")
    count = int(mark.args[0]) if mark else len(variants)
    always = {f"[{name}]" for name in mark.kwargs.get("always", ())} if mark else set()
    able = (item for item in variants if not item.get_closest_marker("variant"))

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        return not any(item.name.endswith(name) for name in always), crc32(item.name.encode()), item.name

    return sorted(able, key=place)[count:]
