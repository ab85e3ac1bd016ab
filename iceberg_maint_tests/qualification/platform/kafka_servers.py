"""Kafka from its jars: a broker in KRaft mode, a standalone Connect worker with Iceberg's sink, and the command-line tools."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from iceberg_maint.engines.spark.session.jars import pyspark_jars_dir
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.support.servers.postgres import free_port

_KAFKA, _ICEBERG = "4.1.0", "1.12.0"
_JARS = (
    ("org.apache.kafka", "kafka_2.13", _KAFKA),
    ("org.apache.kafka", "kafka-tools", _KAFKA),
    ("org.apache.kafka", "connect-runtime", _KAFKA),
    ("org.apache.kafka", "connect-json", _KAFKA),
    ("org.apache.iceberg", "iceberg-kafka-connect", _ICEBERG),
    ("org.apache.iceberg", "iceberg-parquet", _ICEBERG),
    ("org.postgresql", "postgresql", "42.7.13"),
    ("org.slf4j", "slf4j-simple", "2.0.18"),
)
_SHA256 = "13140a68a1405ad4669e847cb18dad5958d3a6d81126974c45f8a544674385b2"
"""Of the names and the sha256 of all jars, those that these need included."""
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="local" module="connect"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_BROKER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/broker
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=2000
"""
_WORKER = """\
bootstrap.servers=127.0.0.1:{port}
listeners=http://127.0.0.1:{rest}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/connect-offsets
offset.flush.interval.ms=1000
consumer.session.timeout.ms=6000
consumer.heartbeat.interval.ms=2000
"""


def kafka_jars(cache: Path) -> Path:
    """The folder of the jars, which Ivy fetches at the first use. Raises AssertionError if they have another checksum."""
    folder = cache / f"kafka-{_KAFKA}-iceberg-{_ICEBERG}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as name:
            scratch = Path(name)
            lines = (
                f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>'
                for group, artifact, version in _JARS
            )
            (scratch / "ivy.xml").write_text(_MODULE.format("".join(lines)), "utf-8")
            command = [
                str(_java()),
                "-cp",
                str(pyspark_jars_dir() / "*"),
                "org.apache.ivy.Main",
                "-warn",
                "-m2compatible",
            ]
            command += [
                "-cache",
                str(scratch / "ivy"),
                "-ivy",
                str(scratch / "ivy.xml"),
                "-types",
                "jar",
                "bundle",
            ]
            command += ["-retrieve", str(scratch / "jars" / "[artifact]-[revision].[ext]")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            (scratch / "jars").replace(folder)
    lines = (
        f"{jar.name} {hashlib.sha256(jar.read_bytes()).hexdigest()}\n" for jar in sorted(folder.glob("*.jar"))
    )
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest == _SHA256, f"{folder} has sha256 {digest}, not {_SHA256}: delete it and run again"
    return folder


def _java() -> Path:
    return find_java(os.environ, shim_dir=PROJECT / ".cache" / "java").executable


class Kafka:
    """A broker with its topics in a folder, and the processes that use it. `stop` ends all of them."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        # Hadoop, with which Iceberg reads and writes files, comes with PySpark.
        self._class_path = os.pathsep.join(
            [f"{jars}/*", *map(str, pyspark_jars_dir().glob("hadoop-client-*.jar"))]
        )
        self._port, controller = free_port(), free_port()
        self._server = f"127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[str]] = []
        settings = self._file("broker", _BROKER.format(port=self._port, controller=controller, folder=folder))
        self.tool("kafka.tools.StorageTool", "format", "-t", "aWNlYmVyZy1tYWludC10ZQ", "-c", settings)
        self._start("broker", "kafka.Kafka", settings)
        self._producer = self._start(
            "producer",
            "org.apache.kafka.tools.ConsoleProducer",
            "--bootstrap-server",
            self._server,
            "--topic",
            "clicks",
        )

    def produce(self, rows: list[Mapping[str, object]]) -> None:
        """Sends rows to the topic `clicks`."""
        assert self._producer.stdin is not None
        self._producer.stdin.writelines(json.dumps(row) + "\n" for row in rows)
        self._producer.stdin.flush()

    def connect(self, number: int, sink: Mapping[str, object]) -> subprocess.Popen[str]:
        """Starts the worker with one sink."""
        worker = _WORKER.format(port=self._port, rest=free_port(), folder=self._folder)
        settings = "".join(f"{key}={value}\n" for key, value in sink.items())
        files = (self._file("worker", worker), self._file("sink", settings))
        return self._start(f"connect-{number}", "org.apache.kafka.connect.cli.ConnectStandalone", *files)

    def read_again(self, group: str, topic: str) -> None:
        """Sets the offsets of a group, which must have no member, to the beginning of a topic."""
        command = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
        self.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            self._server,
            *command,
        )

    def tool(self, *command: str) -> str:
        """The output of a tool. Raises AssertionError with it if the tool fails, for ten seconds."""
        for _ in range(10):
            done = subprocess.run(
                self._command(*command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode == 0 and "Error:" not in done.stdout:
                return done.stdout
            time.sleep(1)
        raise AssertionError(f"{command}: {done.stdout[-2000:]}")

    def stop(self) -> None:
        """Kills the processes."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text("utf-8", "replace")

    def _start(self, name: str, *command: str) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(*command), stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )
        self._processes.append(process)
        return process

    def _command(self, *command: str) -> list[str]:
        options = [
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        return [str(_java()), *options, "-cp", self._class_path, *command]

    def _file(self, name: str, text: str) -> str:
        file = self._folder / f"{name}.properties"
        file.write_text(text, "utf-8")
        return str(file)
