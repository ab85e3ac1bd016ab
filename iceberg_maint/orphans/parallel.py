"""Changes of files in an object store, many at once: a request to it takes far longer than its work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def changed(
    items: Iterable[Item],
    change: Callable[[Item], Result],
    at_once: int,
    require_lease: Callable[[], None],
    stage_of: Callable[[Item], Hashable] = lambda _: None,
) -> Iterator[tuple[Item, Result]]:
    """Yields each item with the result of `change`, in order. Up to `at_once` run together; the lease is checked
    before each such group. A group has items of one stage only: if the process dies, every earlier stage is complete.

    If a change raises, the others of its group complete and are yielded, then the first error is raised.
    """
    if at_once == 1:
        for item in items:
            require_lease()
            yield item, change(item)
        return
    with ThreadPoolExecutor(at_once) as threads:
        for _, stage in groupby(items, stage_of):
            while group := list(islice(stage, at_once)):
                require_lease()
                futures = [threads.submit(change, item) for item in group]
                errors = [error for future in futures if (error := future.exception()) is not None]
                yield from (
                    (item, future.result())
                    for item, future in zip(group, futures, strict=True)
                    if future.exception() is None
                )
                if errors:
                    raise errors[0]
