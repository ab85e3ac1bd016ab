"""Child processes that do not import the program again: one server imports it once, and each process is forked from it.

A test that needs many processes at once, or one to kill, pays for its imports only once.
"""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
"""Takes the place of the context `spawn`: processes share no state, and what they run must be importable."""

CONTEXT.set_forkserver_preload(
    [
        "iceberg_maint.ledger.ledger",
        "iceberg_maint_tests.ledger.test_crash",
        "iceberg_maint_tests.ledger.test_leases",
        "iceberg_maint_tests.ledger.test_migrations",
        "iceberg_maint_tests.support.removal.killed_pass",
    ]
)
