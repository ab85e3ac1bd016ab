"""The archive of Java's classes: the options of the JVM, and who may write it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.engines.spark.session.class_archive import (
    check_writers,
    is_damaged,
    newer_parts,
    usable_archive,
)
from iceberg_maint.engines.spark.session.java import JavaHome
from iceberg_maint.engines.spark.session.settings import SparkSettings, spark_conf
from iceberg_maint.errors import EXIT_REFUSED, ConfigurationError, RefusedError
from iceberg_maint.wiring.spark_session import start_settings

OPTIONS = "spark.driver.defaultJavaOptions"
NOBODY = 65534


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file in a folder of its own, both of this user only."""
    folder = tmp_path / "archive"
    folder.mkdir(mode=0o755)
    path = folder / "classes.jsa"
    path.write_bytes(b"")
    path.chmod(0o400)
    return path


def conf_of(archive: Path | None, **conf: str) -> dict[str, str]:
    return spark_conf(SparkSettings("local[1]", (), {}, conf, class_archive=archive))


def refusal_of(archive: Path) -> str:
    with pytest.raises(RefusedError) as refusal:
        usable_archive(archive)
    assert refusal.value.exit_code == EXIT_REFUSED
    return str(refusal.value)


def test_options_of_the_archive_come_after_those_of_the_user() -> None:
    quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
    conf = conf_of(Path("/a/classes.jsa"), **{OPTIONS: "-XX:+UseSerialGC"})
    assert conf[OPTIONS] == f"-XX:+UseSerialGC -XX:SharedArchiveFile=/a/classes.jsa {quiet}"
    assert conf_of(Path("/c.jsa"))[OPTIONS] == f"-XX:SharedArchiveFile=/c.jsa {quiet}"


def test_without_an_archive_the_options_are_those_of_the_user() -> None:
    assert OPTIONS not in conf_of(None)
    assert conf_of(None, **{OPTIONS: "-Da=b"})[OPTIONS] == "-Da=b"


@pytest.mark.parametrize("key", [OPTIONS, "spark.driver.extraJavaOptions"])
def test_second_archive_among_the_user_s_options_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        conf_of(Path("/a.jsa"), **{key: "-Da=b -XX:SharedArchiveFile=/b.jsa"})
    assert str(refusal.value) == (
        f"ICM-100 spark.conf.{key} has -XX:SharedArchiveFile=…, which names an archive of classes. Only "
        f"spark.class_archive may name it. Fix: remove the option from spark.conf.{key}."
    )


def test_start_gets_the_archive_that_is_there_and_none_that_is_missing(archive: Path) -> None:
    file = archive.with_name("maint.yaml")
    file.write_text(
        f"catalogs: {{lake: {{type: rest, uri: 'http://a'}}}}\nspark: {{class_archive: {archive}}}\n"
    )
    config = load_config(file, dict(os.environ))
    assert start_settings(config).class_archive == archive
    archive.unlink()
    assert start_settings(config).class_archive is None
    archive.mkdir()
    assert start_settings(config).class_archive is None


@pytest.mark.parametrize("mode", [0o420, 0o402])
def test_archive_that_others_can_write_is_refused(archive: Path, mode: int) -> None:
    archive.chmod(mode)
    assert refusal_of(archive) == (
        f"ICM-105 spark.class_archive: group or others can write {archive}. Only this user and root may write {archive} "
        "and the folders above it: a person who can write them can run code in the driver. "
        f"Fix: run chmod go-w {archive}."
    )


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_archive_in_a_folder_that_others_can_write_is_refused(archive: Path, mode: int) -> None:
    archive.parent.chmod(mode)
    # Without the right to write, other users could not use a folder such as /tmp.
    fix = "name a file in a folder of its own" if mode == 0o1777 else f"run chmod go-w {archive.parent}"
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
    assert usable_archive(archive) == archive
    above.chmod(0o777)
    assert refusal_of(archive).endswith(f"Fix: run chmod go-w {above}.")


def test_archive_behind_links_is_checked_at_every_link_and_where_it_is(archive: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("links", "more links")]
    for folder in folders:
        folder.mkdir(mode=0o755)
    link, second, to_folder = folders[0] / "classes.jsa", folders[1] / "second.jsa", folders[1] / "folder"
    link.symlink_to(second)
    second.symlink_to("folder/classes.jsa")
    to_folder.symlink_to(archive.parent)
    assert usable_archive(link) == link
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
        f"ICM-105 spark.class_archive: {place} belongs to user {owner}. Only this user and root may write {archive} and "
        "the folders above it: a person who can write them can run code in the driver. "
        f"Fix: run chown -h {user} {place}."
    )


def test_parts_newer_than_the_archive_are_found(archive: Path, tmp_path: Path) -> None:
    parts = [tmp_path / name for name in ("older.jar", "same.jar", "newer.jar", "missing.jar")]
    for part, seconds in zip(parts, (900, 1000, 1100), strict=False):
        part.write_bytes(b"")
        os.utime(part, (seconds, seconds))
    os.utime(archive, (1000, 1000))
    assert list(newer_parts(archive, parts)) == [parts[2]]


def test_truncated_and_changed_archive_is_damaged(tmp_path: Path, java: JavaHome) -> None:
    archive = tmp_path / "classes.jsa"
    write = [java.path / "bin" / "java", f"-XX:ArchiveClassesAtExit={archive}", "-version"]
    subprocess.run(write, capture_output=True, check=True)
    assert not is_damaged(archive, java.path)
    whole = archive.read_bytes()
    archive.chmod(0o600)
    archive.write_bytes(whole[: len(whole) // 2])
    assert is_damaged(archive, java.path)
    middle = len(whole) // 2
    archive.write_bytes(
        whole[:middle] + bytes(b ^ 0xFF for b in whole[middle : middle + 64]) + whole[middle + 64 :]
    )
    assert is_damaged(archive, java.path)
