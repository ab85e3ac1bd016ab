"""The attempt in the name of an output file."""

from __future__ import annotations

ATTEMPT = "-0-"
"""Where a name has the number of the attempt."""


def of_attempt(location: str, attempt: int) -> str:
    """The location for an attempt of a task. Two attempts may run at the same time, so they write different files."""
    folder, _, name = location.rpartition("/")
    return f"{folder}/{name.replace(ATTEMPT, f'-{attempt}-', 1)}"
