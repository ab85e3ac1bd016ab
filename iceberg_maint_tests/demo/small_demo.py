"""Runs the demo on a small lake in a process of its own, because Spark's session is the process's.

argv: the folder of the lake. Prints the report as one JSON line on stdout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from iceberg_maint.demo import run
from iceberg_maint_tests.demo.conftest import SMALL

if __name__ == "__main__":
    report = run(Path(sys.argv[1]), Console(file=sys.stderr, width=140), scale=SMALL)
    print(json.dumps(report.document()))
