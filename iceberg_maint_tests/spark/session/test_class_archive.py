"""The archive of Java's classes: what it depends on, who may write it, and that a damaged one is not used."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.engines.spark.session import class_archive
from iceberg_maint.engines.spark.session.class_archive import (
    Archive,
    archive_of,
    check_writers,
    reading,
    usable,
    write_later,
)
from iceberg_maint.engines.spark.session.driver_jvm import class_path
from iceberg_maint.engines.spark.session.java import JavaHome
from iceberg_maint.engines.spark.session.write_class_archive import write
from iceberg_maint.errors import EXIT_REFUSED, RefusedError

NOBODY = 65534
KEY = "0" * 24


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file in a folder of its own, both of this user only."""
    folder = tmp_path / "archive"
    folder.mkdir(mode=0o755)
    path = folder / f"{KEY}-0.jsa"
    path.write_bytes(b"")
    path.chmod(0o400)
    return path


def of_file(file: Path) -> Archive:
    return Archive(file.parent, Path("java"), "", KEY)


def refusal_of(archive: Path) -> str:
    assert usable(of_file(archive)) is None
    with pytest.raises(RefusedError) as refusal:
        check_writers(archive)
    assert refusal.value.exit_code == EXIT_REFUSED
    return str(refusal.value)


def test_archive_depends_on_java_and_on_every_jar(tmp_path: Path) -> None:
    java, jar = tmp_path / "jdk" / "bin" / "java", tmp_path / "a.jar"
    java.parent.mkdir(parents=True)
    java.write_text("java")
    jar.write_text("jar")

    def key() -> str:
        return archive_of(tmp_path, java, str(jar)).key

    first = key()
    assert (key(), len(first)) == (first, 24)
    jar.write_text("other")
    second = key()
    (tmp_path / "jdk" / "release").write_text("JAVA_VERSION")
    assert len({first, second, key(), archive_of(tmp_path, java, "b.jar").key}) == 4


def test_archive_of_another_size_or_key_is_not_used(archive: Path) -> None:
    assert usable(of_file(archive)) == archive
    archive.chmod(0o600)
    archive.write_bytes(b"1")
    assert usable(of_file(archive)) is None
    assert usable(Archive(archive.parent, Path("java"), "", "1" * 24)) is None


@pytest.mark.parametrize("mode", [0o420, 0o402])
def test_archive_that_others_can_write_is_refused(archive: Path, mode: int) -> None:
    archive.chmod(mode)
    assert refusal_of(archive) == (
        f"ICM-105 The archive of Java's classes is not used: group or others can write {archive}. Only this user and root may write {archive} "
        "and the folders above it: a person who can write them can run code in the driver. "
        f"Fix: run chmod go-w {archive}."
    )


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_archive_in_a_folder_that_others_can_write_is_refused(archive: Path, mode: int) -> None:
    archive.parent.chmod(mode)
    # Without the right to write, other users could not use a folder such as /tmp.
    fix = (
        "set ICEBERG_MAINT_CACHE to a folder of this user"
        if mode == 0o1777
        else f"run chmod go-w {archive.parent}"
    )
    assert refusal_of(archive).endswith(f"Fix: {fix}.")


def test_archive_that_others_can_write_may_be_replaced_in_a_folder_of_this_user(archive: Path) -> None:
    archive.chmod(0o666)
    check_writers(archive, is_replaced=True)
    archive.parent.chmod(0o777)
    with pytest.raises(
        RefusedError, match=f"group or others can write {archive.parent}\\. .* write {archive} "
    ):
        check_writers(archive, is_replaced=True)


def test_folder_above_that_others_can_write_is_refused_unless_it_is_sticky(archive: Path) -> None:
    above = archive.parent.parent
    above.chmod(0o1777)
    assert usable(of_file(archive)) == archive
    above.chmod(0o777)
    assert refusal_of(archive).endswith(f"Fix: run chmod go-w {above}.")


def test_archive_behind_links_is_checked_at_every_link_and_where_it_is(archive: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("links", "more links")]
    for folder in folders:
        folder.mkdir(mode=0o755)
    link, second, to_folder = folders[0] / archive.name, folders[1] / "second.jsa", folders[1] / "folder"
    link.symlink_to(second)
    second.symlink_to(f"folder/{archive.name}")
    to_folder.symlink_to(archive.parent)
    assert usable(of_file(link)) == link
    for folder in (*folders, archive.parent):
        folder.chmod(0o777)
        assert refusal_of(link).endswith(f"Fix: run chmod go-w {shell_argument(str(folder))}.")
        folder.chmod(0o755)


@pytest.mark.parametrize("depth", [0, 1])
def test_archive_of_another_user_is_refused(
    archive: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, user = (archive, archive.parent)[depth], os.getuid()
    if user == 0:
        os.chown(place, NOBODY, -1)
        owner = NOBODY
    else:
        # Only root can give a file to another user, so this process is taken for one.
        owner, user, place = user, user + 1, archive
        monkeypatch.setattr(os, "getuid", lambda: user)
    assert refusal_of(archive) == (
        f"ICM-105 The archive of Java's classes is not used: {place} belongs to user {owner}. Only this user and root may write {archive} and "
        "the folders above it: a person who can write them can run code in the driver. "
        f"Fix: run chown -h {user} {place}."
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, java: JavaHome, jars: list[Path]) -> Archive:
    """An archive of few classes, as Java writes it, beside six older ones."""
    folder = tmp_path_factory.mktemp("archives")
    folder.chmod(0o700)
    for number in range(6):
        other = folder / f"{number}-1.jsa"
        other.write_text("1")
        os.utime(other, (1000 + number, 1000 + number))
    classes = tmp_path_factory.mktemp("classes") / "classes.txt.gz"
    classes.write_bytes(gzip.compress(b"org.apache.spark.SparkConf\nno.such.Class\n"))
    archive = archive_of(
        folder, java.path / "bin" / "java", class_path({"spark.jars": ",".join(map(str, jars))})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_archive, "CLASSES", classes)
        assert write(archive) == ""
    return archive


def test_written_archive_is_whole_and_private_and_only_the_newest_are_kept_beside_it(
    written: Archive,
) -> None:
    file = usable(written)
    assert file is not None
    assert file.stat().st_mode & 0o777 == 0o400
    names = sorted(f.name for f in written.folder.iterdir())
    assert names == sorted([file.name, "3-1.jsa", "4-1.jsa", "5-1.jsa"])


def test_changed_archive_is_not_used_by_java(written: Archive, tmp_path: Path) -> None:
    whole_file = usable(written)
    assert whole_file is not None
    whole, file = whole_file.read_bytes(), tmp_path / "changed.jsa"
    middle = len(whole) // 2
    file.write_bytes(
        whole[:middle] + bytes(b ^ 0xFF for b in whole[middle : middle + 64]) + whole[middle + 64 :]
    )
    options = [o for o in reading(file) if not o.startswith("-Xlog")]
    quiet = subprocess.run(
        [written.java, *options, "-Xlog:cds", "-version"], capture_output=True, text=True, check=False
    )
    assert "Checksum verification failed" in quiet.stdout


def test_java_that_writes_no_archive_says_why_and_is_asked_once(tmp_path: Path) -> None:
    folder, java = tmp_path / "made", tmp_path / "java"
    folder.mkdir(mode=0o700)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o700)
    archive = archive_of(folder, java, "")
    assert write(archive) == "Java ended with code 1"
    assert list(folder.iterdir()) == [archive.failed]
    write_later(archive)
    assert class_archive._begun == []


def test_second_start_of_an_archive_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(class_archive, "_begun", [])
    monkeypatch.setattr(class_archive.subprocess, "Popen", lambda arguments, **_: calls.append(arguments))
    archive = archive_of(tmp_path / "made", tmp_path / "java", "a.jar")
    write_later(archive)
    assert (calls, archive.begun.stat().st_mode & 0o777) == ([], 0o600)
    write_later(archive)
    assert [call[-3:] for call in calls] == [[str(tmp_path / "made"), str(tmp_path / "java"), "a.jar"]]


def test_folder_that_cannot_be_written_gets_no_archive(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    write_later(Archive(blocked / "classes", Path("java"), "", KEY))
    assert class_archive._begun == []
