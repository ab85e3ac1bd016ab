"""`archive-classes`: what it refuses, and that a later start of Spark takes its classes from the file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iceberg_maint_tests.cli.conftest import Lake
from iceberg_maint_tests.support import jvm

pytestmark = [pytest.mark.seconds, pytest.mark.together("programs")]

# The JVMs of tests have an archive of their own. These start without it.
JAVA_OPTIONS = jvm.options(archive=Path("/no archive"))
START = """
import os, sys
from pathlib import Path
from iceberg_maint.config import load_config
from iceberg_maint.wiring.spark_session import session
session(load_config(Path(sys.argv[1]), os.environ)).stop()
"""


def configured(folder: Path, spark: str) -> Path:
    """The configuration of a lake that does not exist: no command of these tests may need it."""
    file = folder / "maint.yaml"
    file.write_text(
        f"catalogs: {{lake: {{type: jdbc, uri: 'sqlite:///{folder}/no/catalog.db', warehouse: 'file://{folder}/no'}}}}\n"
        f"spark:\n  master: spark://no.invalid:7077\n{spark}"
    )
    return file


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": JAVA_OPTIONS, "TMPDIR": str(folder / "tmp")}
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False
    )


def test_without_a_setting_and_a_path_it_is_refused(lake: Lake) -> None:
    result = lake("archive-classes")
    assert result.exit_code == 2
    assert result.stderr == (
        "ICM-100 spark.class_archive is not set, and no PATH is given. One of them must name the archive. "
        "Fix: set spark.class_archive to the absolute path of a file.\n"
    )


@pytest.mark.parametrize(
    ("name", "what"), [("no/classes.jsa", "is in a folder that does not exist"), ("", "is a folder")]
)
def test_path_that_cannot_be_a_file_is_refused(lake: Lake, tmp_path: Path, name: str, what: str) -> None:
    result = lake("archive-classes", str(tmp_path / name))
    assert (result.exit_code, result.stderr) == (
        2,
        f"ICM-100 the archive {tmp_path / name} {what}. Fix: name a file in a folder that exists.\n",
    )


def test_folder_that_cannot_be_looked_into_is_refused(lake: Lake, tmp_path: Path) -> None:
    # As a folder that this user may not enter, also for root: a name that is too long.
    target = tmp_path / ("x" * 300) / "classes.jsa"
    result = lake("archive-classes", str(target))
    assert (result.exit_code, result.stderr) == (
        2,
        (
            f"ICM-100 the archive {target} cannot be written: File name too long. "
            "Fix: name a file in a folder that you may write to.\n"
        ),
    )


def test_path_that_java_would_misread_is_refused(lake: Lake, tmp_path: Path) -> None:
    result = lake("archive-classes", str(tmp_path / "a:b"))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"ICM-100 PATH is '{tmp_path}/a:b'. It must not contain ':'")


def test_folder_that_others_can_write_is_refused_before_spark_starts(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    result = lake("archive-classes", str(folder / "classes.jsa"))
    assert result.exit_code == 3
    assert result.stderr.startswith(f"ICM-105 spark.class_archive: group or others can write {folder}.")
    assert list(folder.iterdir()) == []


@pytest.mark.variant  # two minutes; what is refused before Spark starts is tested above
@pytest.mark.spark
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    archive, loaded = tmp_path / "archive" / "classes.jsa", tmp_path / "loaded.log"
    archive.parent.mkdir(mode=0o755)
    config = configured(
        tmp_path,
        f"  class_archive: {archive}\n  conf:\n    spark.driver.memory: 1g\n    spark.eventLog.enabled: 'true'\n",
    )
    made = python(tmp_path, "-m", "iceberg_maint", "--config", str(config), "archive-classes", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    size = archive.stat().st_size
    assert json.loads(made.stdout) == {"archive": str(archive), "bytes": size, "next": []}
    assert (archive.stat().st_mode & 0o777, list(archive.parent.iterdir())) == (0o400, [archive])
    assert (list((tmp_path / "tmp").glob("iceberg_maint-*")), (tmp_path / "no").exists()) == ([], False)

    text = config.read_text("utf-8").replace("spark://no.invalid:7077", "local[1]")
    options = f"    spark.driver.defaultJavaOptions: -Xlog:class+load:file={loaded}\n"
    config.write_text(text.replace("    spark.eventLog.enabled: 'true'\n", options), "utf-8")
    started = python(tmp_path, "-c", START, str(config))
    assert started.returncode == 0, started.stderr
    lines = loaded.read_text("utf-8").splitlines()
    sources = {" ".join(line.split()[2:]) for line in lines if " org.apache.spark.SparkContext " in line}
    assert sources == {"source: shared objects file (top)"}, sources


@pytest.mark.variant  # a minute
@pytest.mark.spark
@pytest.mark.parametrize(
    ("java_options", "exit_code", "error"),
    [
        ("-Xshare:off", 1, "ICM-175 Spark does not start: its JVM ended before it answered."),
        ("-Da=b", 3, "ICM-103 Java wrote no archive of classes: Error: non-empty directory"),
    ],
)
def test_java_that_writes_no_archive_is_refused_and_the_old_file_stays(
    tmp_path: Path, java_options: str, exit_code: int, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, conf = tmp_path / "archive" / "classes.jsa", tmp_path / "conf"
    for folder in (archive.parent, conf):
        folder.mkdir(mode=0o755)
    archive.write_text("old")
    # Spark puts this folder before its jars on the class path. Java archives no classes of a folder.
    (conf / "spark-defaults.conf").write_text("")
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    config = configured(tmp_path, f"  conf: {{spark.driver.defaultJavaOptions: {java_options}}}\n")
    run = python(tmp_path, "-m", "iceberg_maint", "--config", str(config), "archive-classes", str(archive))
    assert run.returncode == exit_code, run.stderr
    assert error in run.stderr, run.stderr
    assert (archive.read_text(), list(archive.parent.iterdir())) == ("old", [archive])
    assert list((tmp_path / "tmp").glob("iceberg_maint-*")) == []


@pytest.mark.variant  # a minute
@pytest.mark.spark
def test_java_killed_while_it_writes_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    archive = tmp_path / "archive" / "classes.jsa"
    archive.parent.mkdir(mode=0o755)
    archive.write_text("old")
    # As a call leaves it that was killed with its process.
    (archive.parent / ".classes.jsa.killed" / "lake").mkdir(parents=True)
    config = configured(tmp_path, "")
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": JAVA_OPTIONS}
    command = [
        sys.executable,
        "-m",
        "iceberg_maint",
        "--config",
        str(config),
        "archive-classes",
        str(archive),
    ]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None and not list(archive.parent.glob(".classes.jsa.*/classes.jsa")):
            time.sleep(0.01)
        # The JVM is the only child: Spark's shell scripts become it.
        os.kill(int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text()), signal.SIGKILL)
        _, said = run.communicate(timeout=240)
    assert run.returncode == 3, said
    assert "ICM-103 Java wrote no archive of classes: it ended with code -9 and named no cause." in said
    assert (archive.read_text(), list(archive.parent.iterdir())) == ("old", [archive])
