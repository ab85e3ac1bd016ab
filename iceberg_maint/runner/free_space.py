"""What is free on the file systems of a table and of scratch files, for the message of a failure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from iceberg_maint.core.model.location import Equivalences, parse_location

_MIB = 1024 * 1024


def free_space(locations: Iterable[str]) -> str:
    """Each local file system of these locations once, with its mount point and what is free on it. Empty if all are in
    stores."""
    by_device = {folder.stat().st_dev: folder for folder in map(_existing, _local_paths(locations))}
    texts = [_described(_mount(folder)) for folder in by_device.values()]
    return f"Free: {'; '.join(texts)}." if texts else ""


def _local_paths(locations: Iterable[str]) -> Iterable[Path]:
    parsed = (parse_location(text, Equivalences()) for text in locations)
    return (Path(location.path) for location in parsed if location.is_local)


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _mount(folder: Path) -> Path:
    return next(p for p in (folder, *folder.parents) if p.is_mount() or p == p.parent)


def _described(mount: Path) -> str:
    space = os.statvfs(mount)
    notes = [
        f"{space.f_bavail * space.f_frsize / _MIB:,.1f} of {space.f_blocks * space.f_frsize / _MIB:,.1f} MiB"
    ]
    # A file system without a fixed number of inodes reports none.
    notes += ["no inode"] if space.f_files and not space.f_favail else []
    notes += ["read-only"] if space.f_flag & os.ST_RDONLY else []
    return f"{mount} {', '.join(notes)}"
