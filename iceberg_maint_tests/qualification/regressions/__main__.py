"""Checks that the tests of each regression fail without its guard and pass with it.

python -m iceberg_maint_tests.qualification.regressions [KEY…]
python -m iceberg_maint_tests.qualification.regressions --page > docs/project/regressions.md
"""

from __future__ import annotations

import sys
from dataclasses import replace

from iceberg_maint_tests.qualification.mutants.run import living, prepare
from iceberg_maint_tests.qualification.regressions.inventory import INVENTORY
from iceberg_maint_tests.qualification.regressions.page import page


def main(keys: list[str]) -> int:
    if keys == ["--page"]:
        print(page(), end="")
        return 0
    prepare()
    every = [r for regressions in INVENTORY.values() for r in regressions]
    # Each test of a regression runs by itself, because each must fail.
    alone = [
        replace(r.off, name=r.key, tests=(test,))
        for r in every
        if not keys or r.key in keys
        for test in r.off.tests
    ]
    return min(living(alone), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
