"""The archive of Java's classes that the driver's JVM maps at its start: its options, who may write it, its age.

Java checks no digest of an archive. A person who can write one can run code in the driver.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.errors import ConfigurationError, RefusedError

SETTING = "spark.class_archive"
COMMAND = "iceberg-maint archive-classes"
_DEFAULT_OPTIONS, _EXTRA_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
_OPTIONS_OF_ARCHIVES = ("-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit=")
# Java starts without an archive that it cannot use, and need not say so.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def reading(archive: Path) -> str:
    """Java's options to start with this archive."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def is_read(conf: Mapping[str, str]) -> bool:
    """Whether the driver's JVM starts with an archive."""
    return _OPTIONS_OF_ARCHIVES[0] in conf.get(_DEFAULT_OPTIONS, "")


def writing(archive: Path, log: Path) -> str:
    """Java's options to write this archive when the JVM exits, and its errors about that to `log`."""
    quiet = "-Xlog:cds*=off -Xlog:class+path=off"
    return f"-XX:ArchiveClassesAtExit={archive} {quiet} -Xlog:cds*=error:file={log}:none"


def with_java_options(conf: Mapping[str, str], options: str) -> dict[str, str]:
    """The settings with more options for the driver's JVM, after those of the user.

    Raises ConfigurationError ICM-100 if the user's options name an archive themselves: Java takes one only.
    """
    for key in (_DEFAULT_OPTIONS, _EXTRA_OPTIONS):
        for option in _OPTIONS_OF_ARCHIVES:
            if option in conf.get(key, ""):
                raise ConfigurationError(
                    "ICM-100",
                    f"spark.conf.{key} has {option}…, which names an archive of classes. Only {SETTING} may name it.",
                    f"remove the option from spark.conf.{key}.",
                )
    return {**conf, _DEFAULT_OPTIONS: f"{conf.get(_DEFAULT_OPTIONS, '')} {options}".strip()}


def usable_archive(archive: Path | None) -> Path | None:
    """The archive if this user can read it, else None: Spark starts without it.

    Raises RefusedError ICM-105 if another user than this one and root can write it.
    """
    if archive is None or not (os.access(archive, os.R_OK) and archive.is_file()):
        return None
    check_writers(archive)
    return archive


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
            fix = "name a file in a folder of its own" if is_shared else f"run chmod go-w {argument}"
            raise _refused(archive, f"group or others can write {place}", fix)


def newer_parts(archive: Path, parts: Iterable[Path]) -> Iterator[Path]:
    """The parts of Java's and Spark's installation that are newer than the archive. Java compares their times with those
    in the archive, and ignores it if one differs."""
    made = archive.stat().st_mtime
    return (part for part in parts if part.is_file() and part.stat().st_mtime > made)


def is_damaged(archive: Path, java: Path) -> bool:
    """Whether the checksums in an archive are not those of its bytes, by Java's own check. Of a truncated one Java crashes."""
    check = (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=info")
    quiet = ("-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash")
    ended = subprocess.run(
        [java / "bin" / "java", *check, *quiet, "-version"], capture_output=True, check=False
    )
    return ended.returncode != 0 or b"Checksum verification failed" in ended.stdout


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
        f"{SETTING}: {what}. Only this user and root may write {archive} and the folders above it: a person who can "
        "write them can run code in the driver.",
        f"{fix}.",
    )
