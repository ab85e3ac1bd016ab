"""The chaos suite: everybody writes to one lake, ours are killed now and then, every row is accounted for.

    python -m iceberg_maint_tests.qualification.chaos --seconds 300 --seed 1 --results build/chaos.jsonl [--store s3]

Ends with 1 when anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from iceberg_maint_tests.qualification.chaos.runner import conduct


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.chaos")
    parser.add_argument("--seconds", type=float, required=True, help="how long everybody works")
    parser.add_argument("--seed", type=int, required=True, help="decides what each writer does next")
    parser.add_argument("--results", type=Path, required=True, help="file that the result is added to")
    parser.add_argument("--folder", type=Path, help="folder of the lake and all logs, which then stay")
    parser.add_argument("--store", choices=["local", "s3"], default="local", help="where the tables are")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))).absolute()
    found = conduct(folder, options.seconds, options.seed, options.store)
    with options.results.open("a", encoding="utf-8") as results:
        results.write(json.dumps(found) + "\n")
    print(json.dumps(found, indent=2))
    if found["good"]:
        if options.folder is None:
            shutil.rmtree(folder)
        return 0
    print(f"{len(found['faults'])} faults; everything of the run is in {folder}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
