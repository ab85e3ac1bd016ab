"""The archive of Java's classes that the driver's JVM maps at its start: to load and verify them is half of what the start costs.

The second start leaves a process behind that writes the archive, at the lowest priority, to the folder of this user: a
container that starts once writes none. Its name is made of what it depends on: Java and the jars. Java checks no digest of an archive, and a person who can write one can run
code in the driver. So one that others can write is not used, and only a whole one gets its name.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.errors import RefusedError

CLASSES = Path(__file__).with_name("classes.txt.gz")
"""The names of the classes that maintenance loads: `python -m iceberg_maint_tests.support.jvm list` writes them."""
OPTIONS_OF_USERS = (
    "-XX:DumpLoadedClassList=",
    "-XX:SharedArchiveFile=",
    "-XX:ArchiveClassesAtExit=",
    "-Xshare:",
)
QUIET = ("-Xlog:cds*=off", "-Xlog:class+path=off")
_WRITER = "iceberg_maint.engines.spark.session.write_class_archive"


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of a Java (an executable) and its class path in a folder, which need not exist. Its file has its key and its
    size in its name: Java would crash of a part of it."""

    folder: Path
    java: Path
    class_path: str
    key: str

    @property
    def failed(self) -> Path:
        """A file that is there after Java could not write the archive: only `write` tries again."""
        return self.folder / f"{self.key}.failed"

    @property
    def begun(self) -> Path:
        """A file that the first start leaves."""
        return self.folder / f"{self.key}.begun"

    def file(self) -> Path | None:
        """The whole file, None if there is none. Raises RefusedError ICM-105 if another user than this one and root can
        write it."""
        for file in self.folder.glob(f"{self.key}-*.jsa"):
            with suppress(OSError):
                if file.name == file_name(self.key, file.stat().st_size) and os.access(file, os.R_OK):
                    check_writers(file)
                    return file
        return None


def file_name(key: str, size_bytes: int) -> str:
    """The name of the file of an archive."""
    return f"{key}-{size_bytes}.jsa"


def archive_of(folder: Path, java: Path, class_path: str) -> Archive:
    """The archive of this Java and these jars."""
    modules = java.resolve().parent.parent / "lib" / "modules"
    release = java.parent.parent / "release"  # that of a shim names the version of its Java
    parts = [java, release, modules, CLASSES, *map(Path, filter(None, class_path.split(os.pathsep)))]
    states = [(str(part), *_state(part)) for part in parts]
    return Archive(folder, java, class_path, hashlib.sha256(repr(states).encode()).hexdigest()[:24])


def _state(part: Path) -> tuple[int, int]:
    try:
        found = part.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def reading(archive: Path) -> list[str]:
    """Java's options to start with an archive. Java starts without one that it cannot use, and verifies its checksums."""
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", *QUIET]


def usable(archive: Archive) -> Path | None:
    """The file of the archive, None if there is none or others can write it: the JVM starts without."""
    with suppress(RefusedError):
        return archive.file()
    return None


def write_later(archive: Archive) -> None:
    """Starts a process that writes the archive after this one has gone on. Only notes the first call for an archive. Does nothing
    if the folder cannot be written."""
    with suppress(OSError):
        archive.folder.mkdir(0o700, parents=True, exist_ok=True)
        if archive.failed.exists() or not os.access(archive.folder, os.W_OK):
            return
        if not archive.begun.exists():
            archive.begun.touch(0o600)
            return
        arguments = [str(archive.folder), str(archive.java), archive.class_path]
        _begun.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", _WRITER, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


_begun: list[subprocess.Popen[bytes]] = []
"""What this process has begun: Python would warn of one that it forgets."""


def check_writers(archive: Path, *, is_replaced: bool = False) -> None:
    """Raises RefusedError ICM-105 if another user than this one and root can write the file, or replace it in its
    folder or in one above. `is_replaced`: a file or link that is there now does not count, because a new one replaces it."""
    user = os.getuid()
    target = archive.parent.resolve() / archive.name if is_replaced else archive.resolve()
    folders = [folder.stat() for folder in (archive.parent, target.parent)]
    for place in _places(archive.parent if is_replaced else archive):
        found, argument = place.lstat(), shell_argument(str(place))
        if found.st_uid not in (0, user):
            raise _refused(
                archive, f"{place} belongs to user {found.st_uid}", f"run chown -h {user} {argument}"
            )
        # In a folder with the sticky bit, as /tmp, only its owner may replace another folder.
        holds_folders = stat.S_ISDIR(found.st_mode) and not any(os.path.samestat(found, f) for f in folders)
        is_sticky = holds_folders and found.st_mode & stat.S_ISVTX
        is_writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(found.st_mode)
        if is_writable and not is_sticky:
            # Other users need such a folder as it is: /tmp.
            is_shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
            fix = (
                "set ICEBERG_MAINT_CACHE to a folder of this user"
                if is_shared
                else f"run chmod go-w {argument}"
            )
            raise _refused(archive, f"group or others can write {place}", fix)


def _places(archive: Path) -> list[Path]:
    """The file and every folder above it, and those of the target of each link among them."""
    places: dict[Path, None] = {}
    paths = [archive]
    while paths:
        path = paths.pop()
        for place in (path, *path.parents):
            if place not in places and os.path.lexists(place):
                places[place] = None
                if place.is_symlink():
                    paths.append(place.parent / place.readlink())
    return list(places)


def _refused(archive: Path, what: str, fix: str) -> RefusedError:
    return RefusedError(
        "ICM-105",
        f"The archive of Java's classes is not used: {what}. Only this user and root may write {archive} and the folders above "
        "it: a person who can write them can run code in the driver.",
        f"{fix}.",
    )
