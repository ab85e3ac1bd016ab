"""What was done to the files of one trash batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Emptied:
    """The result for the files of a trash batch. `left` files are still in the trash: another file is at
    their place, they differ from what was put there, or the metadata reference them in the trash. `released`: an
    expiry released the files."""

    mark_id: str
    deleted_files: int = 0
    deleted_bytes: int = 0
    restored_files: int = 0
    left_files: int = 0
    released: bool = False
