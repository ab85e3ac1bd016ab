"""Who started a run: as recorded, or as the run's id says."""

from __future__ import annotations

import re

_CLI = re.compile(r"(cli-(?P<host>.+)|orphans)-\d+-[0-9a-f]{8}")
_DAGSTER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?")


def started_by(run_id: str, recorded: str | None) -> str:
    """Who started the run. A record of a run that died does not say it. Then the form of the id does."""
    if recorded:
        return recorded
    if found := _CLI.fullmatch(run_id):
        return f"command line on {found['host']}" if found["host"] else "command line"
    return "Dagster" if _DAGSTER.fullmatch(run_id) else "unknown"
