"""Memory of Spark: what a session declares, and what the batches of a plan need, before Spark starts.

Only applying equality deletes has an estimate (`core.planning.batch_memory`). The memory of the other work depends on rows and
codecs, which metadata does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.planning.batch_memory import (
    FIELD_BYTES,
    MAX_PASSES,
    DeclaredBytes,
    DoesNotFitError,
    MemoryNeed,
    driver_bytes,
    preflight,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    RewriteDataFiles,
)

MIB = 1024**2
_EXECUTOR, _DRIVER = "spark.executor.memory", "spark.driver.memory"
_RESERVED_BYTES = 300 * MIB
_FRACTION = 0.6
_STEP_BYTES = 64 * MIB
_LEAST_HEAP_BYTES = 512 * MIB
"""Spark refuses an executor with less than 450 MiB."""
_MOST_HEAP_BYTES = 1024**4
_BESIDE_BYTES = 3 * FIELD_BYTES
"""The most that a row of keys takes beside the keys."""
_UNITS = {"b": 1, "k": 1024, "m": MIB, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_SIZE = re.compile(r"(\d+)([bkmgtp]?)b?")
_LOCAL = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")


@dataclass(frozen=True, slots=True)
class ExecutorMemory:
    """The memory of the smallest executor and the slots of the largest.

    `unified_bytes` is the smallest memory that execution and storage share. `slots` is the
    largest number of tasks that an executor runs at once. Hash maps grow by `page_bytes`.
    """

    unified_bytes: int
    slots: int

    @property
    def page_bytes(self) -> int:
        """As Spark's `MemoryManager.pageSizeBytes` if `spark.buffer.pageSize` is not set."""
        share = max(1, self.unified_bytes // 2 // self.slots // 16)
        return min(max(1 << (share - 1).bit_length(), MIB), 64 * MIB)


def memory_of_heap(heap_bytes: int, fraction: float, slots: int) -> ExecutorMemory:
    """The memory of an executor with this heap, of which Spark reserves 300 MiB."""
    return ExecutorMemory(int((heap_bytes - _RESERVED_BYTES) * fraction), max(1, slots))


def default_budget_bytes(memory: ExecutorMemory) -> int:
    """The default limit for applying equality deletes, if policy sets none: half of the memory."""
    return memory.unified_bytes // 2


@dataclass(frozen=True, slots=True)
class DeclaredMemory:
    """The heaps of a session's driver and of each executor in bytes, and the tasks that an executor runs at once.

    The driver of a local master runs the tasks itself: `executor_bytes` is its heap. `fraction` is Spark's share of a heap
    for tasks.
    """

    executor_bytes: int
    driver_bytes: int
    slots: int = 1
    fraction: float = _FRACTION
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class NeededMemory:
    """The heaps in bytes with which a plan's equality deletes can be applied, 0 without any.

    `executor_bytes` is the least heap of an executor, with as many passes over the data as it takes, `one_pass_bytes` the
    least with one pass. Either is None if no heap suffices. The driver of a local master needs all of `executor_bytes`.
    """

    executor_bytes: int | None
    one_pass_bytes: int | None
    driver_bytes: int

    def settings(self, declared: DeclaredMemory) -> tuple[NeededSetting, ...]:
        """What is needed of each setting of Spark; nothing if there is nothing to apply."""
        if self.driver_bytes == 0:
            return ()
        driver = NeededSetting(_DRIVER, self.driver_bytes, declared.driver_bytes)
        executor = NeededSetting(
            _DRIVER if declared.is_local else _EXECUTOR, self.executor_bytes, declared.executor_bytes
        )
        return (executor,) if declared.is_local else (executor, driver)


@dataclass(frozen=True, slots=True)
class NeededSetting:
    """A setting of Spark, the bytes that it must declare at least (None: no size suffices), and those that it declares."""

    name: str
    needed_bytes: int | None
    declared_bytes: int

    @property
    def is_short(self) -> bool:
        """Whether less is declared than is needed."""
        return self.needed_bytes is None or self.needed_bytes > self.declared_bytes


def setting_text(size_bytes: int) -> str:
    """A size as Spark reads it, in whole MiB, rounded up."""
    return f"{-(-size_bytes // MIB)}m"


def declared_memory(master: str, conf: Mapping[str, str], cpus: int) -> DeclaredMemory:
    """What the settings of a session declare on a machine with `cpus` cores. Spark's defaults stand in for missing and for malformed ones. A standalone
    cluster gives an executor all cores of its worker if `spark.executor.cores` is not set: that counts as one."""
    driver_bytes = _bytes(conf.get("spark.driver.memory"))
    fraction = _number(conf.get("spark.memory.fraction"), _FRACTION)
    task_cpus = int(_number(conf.get("spark.task.cpus"), 1)) or 1
    if master.startswith("local"):
        return DeclaredMemory(
            driver_bytes, driver_bytes, _local_cores(master, cpus) // task_cpus or 1, fraction, True
        )
    cores = int(_number(conf.get("spark.executor.cores"), 1))
    executor_bytes = _bytes(conf.get("spark.executor.memory"))
    return DeclaredMemory(executor_bytes, driver_bytes, max(1, cores // task_cpus), fraction)


def needed_memory(
    batches: Iterable[Batch], declared: DeclaredMemory, budget_bytes: int | None
) -> NeededMemory:
    """What these batches need, the largest of them. `budget_bytes` is the policy's limit for applying equality deletes;
    None: the share of the heap that it is by default."""
    executors: list[int | None] = [0]
    one_pass: list[int | None] = [0]
    drivers = [0]
    for batch in batches:
        need = memory_of(batch) if batch.equality_deletes and batch.groups else None
        if need is None:
            continue
        files = batch.input_files + len(batch.equality_deletes)
        drivers.append(driver_bytes(files, need.rows))
        beside_bytes = drivers[-1] if declared.is_local else 0
        executors.append(_least_heap(need, declared, budget_bytes, beside_bytes, most_passes=MAX_PASSES))
        one_pass.append(_least_heap(need, declared, budget_bytes, beside_bytes, most_passes=1))
    return NeededMemory(_largest(executors), _largest(one_pass), max(drivers))


def _largest(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known) if len(known) == len(sizes) else None


def memory_of(batch: Batch) -> MemoryNeed | None:
    """The memory that applying the batch's equality deletes needs; None if the batch applies none."""
    work = batch.work
    return work.memory if isinstance(work, RewriteDataFiles | ConvertEqualityDeletes) else None


def _least_heap(
    need: MemoryNeed,
    declared: DeclaredMemory,
    budget_bytes: int | None,
    beside_bytes: int,
    *,
    most_passes: int,
) -> int | None:
    """The least heap that applies the deletes of one batch, with `beside_bytes` of other use; None if none does."""

    def fits(heap_bytes: int) -> bool:
        memory = memory_of_heap(heap_bytes, declared.fraction, declared.slots)
        limit = default_budget_bytes(memory) if budget_bytes is None else budget_bytes
        try:
            within_limit = DeclaredBytes(
                memory_bytes=limit,
                scratch_bytes=None,
                slots=declared.slots,
                page_bytes=memory.page_bytes,
                beside_bytes=_BESIDE_BYTES,
            )
            estimate = preflight(need, within_limit)
        except DoesNotFitError:
            return False
        used = estimate.estimated_bytes
        within = used <= memory.unified_bytes and used + beside_bytes <= heap_bytes
        return within and estimate.passes <= most_passes

    high = _LEAST_HEAP_BYTES
    while not fits(high):
        high *= 2
        if high > _MOST_HEAP_BYTES:
            return None
    low = high // 2 if high > _LEAST_HEAP_BYTES else high
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2 // _STEP_BYTES * _STEP_BYTES
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _bytes(text: str | None) -> int:
    """A size as Spark reads it: MiB without a unit, 1 GiB by default."""
    match = _SIZE.fullmatch((text or "").strip().lower())
    return 1024**3 if match is None else int(match[1]) * _UNITS[match[2] or "m"]


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text is not None else default
    except ValueError:
        return default


def _local_cores(master: str, cpus: int) -> int:
    match = _LOCAL.fullmatch(master)
    if match is None:
        return 1
    return cpus if match[1] == "*" else int(match[1])
