"""Airflow and dbt run the program on a real lake, engines elsewhere do its work, and `dg` takes the component into a project. Streams go
on beside maintenance: `make qualify SUITE=platform`.

python -m iceberg_maint_tests.qualification.platform [airflow] [dbt] [component] [engines] [streaming] [kafka] [flink] --apart .cache/apart
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from iceberg_maint_tests.qualification.platform import (
    airflow,
    component,
    dbt,
    engines,
    flink,
    kafka_connect,
    structured_streaming,
)
from iceberg_maint_tests.support import jvm

PARTS = {
    "airflow": airflow.differences,
    "dbt": dbt.differences,
    "component": component.differences,
    "engines": engines.differences,
    "streaming": structured_streaming.differences,
    "kafka": kafka_connect.differences,
    "flink": flink.differences,
}


def main() -> int:
    """Runs the parts one after another. Prints what differs from the expected."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.platform")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--apart", type=Path, default=Path(".cache/apart"))
    given = parser.parse_args()
    os.environ.update(jvm.environment())
    failed = []
    for name in given.parts or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"platform-{name}-") as folder:
            different = PARTS[name](Path(folder), (given.apart / name).absolute())
        print(
            f"{name}: {'; '.join(different) or 'as expected'} ({time.monotonic() - began:.0f} s)", flush=True
        )
        failed += different
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
