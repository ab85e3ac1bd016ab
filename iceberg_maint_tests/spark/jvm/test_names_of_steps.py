"""The names of the steps whose jobs run at the same time."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.jvm.jobs import PROOF, names_of


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        (set(), "preparing"),
        ({"writing"}, "writing"),
        ({PROOF}, "proof"),
        ({PROOF, "matching"}, "matching and proof"),
    ],
)
def test_names_of_steps_end_with_the_proof(steps: set[str], names: str) -> None:
    assert names_of(steps, "preparing") == names
