"""How many examples a property test draws.

The ordinary run draws a fifth, other examples each time. `ICEBERG_MAINT_TEST_EXAMPLES=all` asks for all of them:
`make qualify SUITE=properties`, the mutants and the regressions do.
"""

from __future__ import annotations

import os

VARIABLE = "ICEBERG_MAINT_TEST_EXAMPLES"
"""The environment variable that asks for all examples by the value `all`."""

_SHARE = 5


def examples(count: int) -> int:
    """The number of examples of this run for a property that deserves `count`."""
    return count if os.environ.get(VARIABLE) == "all" else max(1, count // _SHARE)
