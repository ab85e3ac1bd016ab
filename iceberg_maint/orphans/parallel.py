"""Requests to an object store, many at once: a request to it takes far longer than its work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby, islice
from typing import TypeVar

from iceberg_maint.core.removal.released_files import ReleasedFile
from iceberg_maint.ports.storage import Store, StoredFile

Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_ONCE, _PER_READER = 16, 100
"""The number of files whose facts are read from storage at once, and of files that one reader takes."""


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


def with_facts(
    files: Iterator[ReleasedFile], store: Store
) -> Iterator[tuple[ReleasedFile, StoredFile | None]]:
    """Yields each file with what storage has at its path, in order."""
    if store.at_once == 1:
        yield from ((file, store.stat(file.path)) for file in files)
        return

    def stats(share: list[ReleasedFile]) -> list[StoredFile | None]:
        return [store.stat(file.path) for file in share]

    with ThreadPoolExecutor(_AT_ONCE) as readers:
        while chunk := list(islice(files, _PER_READER * _AT_ONCE)):
            shares = [chunk[n : n + _PER_READER] for n in range(0, len(chunk), _PER_READER)]
            yield from zip(chunk, chain.from_iterable(readers.map(stats, shares)), strict=True)
