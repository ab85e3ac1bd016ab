"""Planted faults in what guards the memo of manifests."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

import pytest

from iceberg_maint.catalog.manifests import memo
from iceberg_maint.catalog.manifests.projection import Wanted
from iceberg_maint_tests.qualification.simulation.mutants import Mutant, Plant

MEMO_MUTANTS: list[Mutant] = []


def planted(rule: str, *, seed: int) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        MEMO_MUTANTS.append(Mutant(plant.__name__, rule, plant, seed))
        return plant

    return register


@planted("an entry of the memo counts only if its checksum fits", seed=3)
def checksum_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def checked(_checksum, packed, read, *_keys):
        with suppress(ValueError, KeyError, TypeError, StopIteration, zlib.error):
            return read(packed)
        return None

    patch.setattr(memo, "_checked", checked)


@planted("a checksum is of what the bytes are stored for, too", seed=3)
def checksum_is_of_the_bytes_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memo, "_checksum", lambda packed, *_keys: blake2b(packed, digest_size=16).digest())


@planted("an entry counts only for the manifest that the list states", seed=0)
def manifest_is_known_by_its_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memo, "identity_of", lambda manifest: manifest.path)


@planted("a projection counts only if it holds the same columns", seed=1)
def columns_of_a_projection_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Wanted, "text", lambda _wanted: "")
