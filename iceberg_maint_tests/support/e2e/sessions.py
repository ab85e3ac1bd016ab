"""The processes of one session of the system: a program that was started in one, and all that it has started."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 20.0


def in_session(number: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, _, _, session = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
                if int(session) == number and state != "Z":
                    found.append(int(folder.name))
    return found


def ended(number: int) -> bool:
    """Whether all of them end within some seconds."""
    until = time.monotonic() + _SECONDS
    while in_session(number) and time.monotonic() < until:
        time.sleep(0.05)
    return not in_session(number)
