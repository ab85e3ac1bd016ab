"""Demands of each hand-written mutant that a test turns red for it.

python -m iceberg_maint_tests.qualification.mutants [gate|anti_join|orphans|columnar [NUMBER…]]
"""

from __future__ import annotations

import sys

from iceberg_maint_tests.qualification.mutants.lists import LISTS
from iceberg_maint_tests.qualification.mutants.run import living, prepare


def main(arguments: list[str]) -> int:
    names, numbers = arguments[:1] or list(LISTS), [int(n) for n in arguments[1:]]
    prepare()
    alive = 0
    for name in names:
        print(f"== {name}", flush=True)
        alive += living(LISTS[name], numbers)
    return min(alive, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
