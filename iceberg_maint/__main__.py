"""`python -m iceberg_maint`."""

from iceberg_maint.cli import main

main()
