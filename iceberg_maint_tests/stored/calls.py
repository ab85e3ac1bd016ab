"""Calls of the program in one process, one after the other, so that they share the imports and the JVM.

    python -m iceberg_maint_tests.stored.calls CONFIG CALLS

CALLS is a JSON list of argument lists. Standard output is a JSON list of (exit code, stdout, stderr).
"""

from __future__ import annotations

import json
import sys

from click.testing import CliRunner

from iceberg_maint.cli import iceberg_maint


def main(config: str, calls: str) -> None:
    ends = []
    for arguments in json.loads(calls):
        result = CliRunner().invoke(iceberg_maint, [*arguments, "--json", "--config", config])
        ends.append((result.exit_code, result.stdout, result.stderr or repr(result.exception)))
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
