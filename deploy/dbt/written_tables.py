"""Prints the Iceberg tables that the last dbt command wrote, for `iceberg-maint run`:

    dbt build; python written_tables.py target --catalog lake | xargs --no-run-if-empty iceberg-maint run

The manifest of dbt names schema and table. The catalog is that of the profile: `spark.sql.defaultCatalog` of dbt-spark,
`database` of dbt-trino.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

WRITTEN = ("table", "incremental", "snapshot", "seed")


def main() -> None:
    """Reads manifest.json and run_results.json of a target folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="dbt's target folder")
    parser.add_argument("--catalog", required=True, help="the catalog's name in iceberg_maint.yaml")
    given = parser.parse_args()
    nodes = json.loads((given.target / "manifest.json").read_text("utf-8"))["nodes"]
    results = json.loads((given.target / "run_results.json").read_text("utf-8"))["results"]
    for result in results:
        node = nodes.get(result["unique_id"])
        if node is None or result["status"] != "success" or node["config"].get("materialized") not in WRITTEN:
            continue
        if node["config"].get("file_format", "iceberg") == "iceberg":
            table = ".".join((given.catalog, node["schema"], node.get("alias") or node["name"]))
            sys.stdout.write(f"{table}\n")


if __name__ == "__main__":
    main()
