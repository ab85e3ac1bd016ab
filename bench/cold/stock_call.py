"""One stock user's call: a fresh session and `CALL rewrite_data_files` on each table. `python -m bench.cold.stock_call LAKE`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.stock_session import stock_session


def main() -> None:
    """Rewrites the data files of every table of the lake."""
    lake = Path(sys.argv[1])
    spark = stock_session(lake / "catalog.db", lake / "warehouse", "2g", lake / "scratch")
    tables = [row.tableName for row in spark.sql("show tables in lake.b").collect()]
    for table in tables:
        print(spark.sql(f"CALL lake.system.rewrite_data_files(table => 'b.{table}')").collect())
    spark.stop()


if __name__ == "__main__":
    main()
