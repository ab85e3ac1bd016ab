"""One stock user's call: a fresh session and `CALL rewrite_data_files` on each table.

    python -m bench.cold.stock_call LAKE [--deletes]

With `--deletes`, its options apply every delete file and drop those that no data file needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.stock_session import STOCK_OPTIONS, stock_session


def main() -> None:
    """Rewrites the data files of every table of the lake."""
    lake = Path(sys.argv[1])
    spark = stock_session(lake / "catalog.db", lake / "warehouse", "2g", lake / "scratch")
    options = ", ".join(f"'{word}'" for pair in STOCK_OPTIONS.items() for word in pair)
    more = f", options => map({options})" if "--deletes" in sys.argv else ""
    for namespace in [row.namespace for row in spark.sql("show namespaces in lake").collect()]:
        for table in [row.tableName for row in spark.sql(f"show tables in lake.{namespace}").collect()]:
            call = f"CALL lake.system.rewrite_data_files(table => '{namespace}.{table}'{more})"
            print(spark.sql(call).collect())
    spark.stop()


if __name__ == "__main__":
    main()
