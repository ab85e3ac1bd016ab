"""The store, the catalog and the runs against them."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from werkzeug.serving import make_server

from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.qualification.chaos.rest_catalog import Handlers, Server

BUNDLE = {
    "coordinate": "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    "sha256": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
}
LIFE_SECONDS = 8.0
WRITE_SECONDS = 2.0
PARTITIONS, FILES = 8, 3
_BACKEND = "rest_backend"
_ROOT = "root"
_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
CONFIG = """\
ledger: sqlite:///{folder}/ledger.db
catalogs:
  lake:
    type: rest
    uri: {catalog}
    properties:
      io-impl: org.apache.iceberg.aws.s3.S3FileIO
      s3.endpoint: {store}
      s3.path-style-access: 'true'
      client.region: us-east-1
      s3.region: us-east-1
spark:
  master: '{master}'
  jars: [{jars}]
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.memory: 1g, spark.task.maxFailures: '1'}}
defaults:
  rewrite_data_files: {{min_input_files: 2, max_concurrent_groups: 1}}
"""


@dataclass
class Tokens:
    """The credentials that the catalog has given, by time, and those that data files were written with."""

    given: int = 0
    written_with: list[str] = field(default_factory=list)
    refused: int = 0

    def new(self) -> dict[str, str]:
        """Credentials that live for some seconds from now."""
        self.given += 1
        now = time.time()
        return {
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.session-token": f"{now:.3f}",
            "s3.session-token-expires-at-ms": str(int((now + LIFE_SECONDS) * 1000)),
        }


class Store:
    """moto's S3 behind a look at the session token of each request."""

    def __init__(self, tokens: Tokens) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app, self._tokens = DomainDispatcherApplication(create_backend_app), tokens

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        if token != _ROOT:
            if time.time() > float(token or 0) + LIFE_SECONDS:
                self._tokens.refused += 1
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response("400 Bad Request", [("Content-Type", "application/xml")])
                return [_EXPIRED]
            if environ["REQUEST_METHOD"] == "PUT" and "/data/" in environ["PATH_INFO"]:
                self._tokens.written_with.append(token)
                time.sleep(WRITE_SECONDS)
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer


class Vending(Handlers):
    """Handlers whose answers carry credentials. `refreshes`: they also name where to get new ones."""

    def __init__(self, bridge: Bridge, uri: str, properties: dict[str, str], tokens: Tokens) -> None:
        super().__init__(bridge, uri, properties["warehouse"], _BACKEND)
        self._tokens, self.refreshes = tokens, True
        catalog = bridge.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(bridge.spark.sparkContext._jsc.hadoopConfiguration())
        catalog.initialize(_BACKEND, bridge.map(properties.items()))
        self._catalog = catalog

    def answer(self, method: str, target: str, body: str) -> tuple[int, str]:
        if target.endswith("/credentials"):
            credentials = [{"prefix": "s3", "config": self._tokens.new()}]
            return 200, json.dumps({"storage-credentials": credentials})
        code, text = super().answer(method, target, body)
        if code == 200 and text.startswith("{") and '"metadata"' in text and "/tables/" in target:
            document = json.loads(text)
            document["config"] = self._tokens.new()
            if self.refreshes:
                document["config"]["client.refresh-credentials-endpoint"] = f"{target}/credentials"
            text = json.dumps(document)
        return code, text


class _Late:
    """Handlers that come once there is a JVM."""

    handlers: Handlers | None = None

    def respond(
        self, method: str, target: str, body: str, headers: Mapping[str, str]
    ) -> tuple[int, str, dict[str, str]]:
        if self.handlers is None:
            return 200, json.dumps({"defaults": {}, "overrides": {}}), {}
        return self.handlers.respond(method, target, body, headers)


class Runs:
    """One store, one catalog and one Spark session."""

    def __init__(self, folder: Path, jars: Iterable[Path], master: str) -> None:
        self._folder, self._jars, self._master = folder, [str(j.resolve()) for j in jars], master
        self._stack = ExitStack()
        self.tokens = Tokens()

    def __enter__(self) -> Self:
        import boto3

        logging.getLogger("werkzeug").setLevel(logging.ERROR)

        store = make_server("127.0.0.1", 0, Store(self.tokens), threaded=True)
        late = _Late()
        catalog = Server(0, late)  # type: ignore[arg-type]
        for server in (store, catalog):
            Thread(target=server.serve_forever, daemon=True).start()
            self._stack.callback(server.shutdown)
        self._url = f"http://127.0.0.1:{store.server_port}"
        root = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_session_token": _ROOT}
        client = boto3.client("s3", endpoint_url=self._url, region_name="us-east-1", **root)
        client.create_bucket(Bucket="bucket")
        config = self._folder / "config.yaml"
        config.write_text(
            CONFIG.format(
                folder=self._folder,
                catalog=f"http://127.0.0.1:{catalog.server_port}",
                store=self._url,
                master=self._master,
                jars=", ".join(self._jars),
            )
        )
        from iceberg_maint.wiring.adapters import load

        self.context = load(config)
        bridge = Bridge(self.context.engine.spark.session())
        self._stack.callback(bridge.spark.stop)
        self._backend = SqlCatalog(
            _BACKEND,
            uri=f"sqlite:///{self._folder}/catalog.db",
            warehouse="s3://bucket/wh",
            **{
                "s3.endpoint": self._url,
                "s3.access-key-id": "key",
                "s3.secret-access-key": "secret",
                "s3.session-token": _ROOT,
                "s3.region": "us-east-1",
            },
        )
        self._backend.create_namespace("db")
        properties = {
            "uri": f"jdbc:sqlite:{self._folder}/catalog.db?journal_mode=WAL&busy_timeout=30000",
            "warehouse": "s3://bucket/wh",
            "jdbc.schema-version": "V1",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self._url,
            "s3.path-style-access": "true",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.session-token": _ROOT,
            "client.region": "us-east-1",
        }
        self._handlers = Vending(bridge, f"sqlite:///{self._folder}/catalog.db", properties, self.tokens)
        late.handlers = self._handlers
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rewrite(self, *, refreshes: bool) -> list[str]:
        """Maintains a new table. Returns what is wrong about it."""
        from iceberg_maint.core.model.ids import Operation
        from iceberg_maint.core.model.reasons import Reason
        from iceberg_maint.loop.maintain import Request, maintain

        name = "db.refreshed" if refreshes else "db.static"
        rows = self._make(name)
        self._handlers.refreshes = refreshes
        tokens = self.tokens.written_with = []
        self.tokens.given = self.tokens.refused = 0
        request = Request(f"run-{name}", operations=(Operation.REWRITE_DATA_FILES,))
        began = time.monotonic()
        (outcome,) = maintain(self.context.catalogs.find(name), request, self.context)
        seconds = time.monotonic() - began
        table = self._backend.load_table(name)
        commits = sum(
            s.summary is not None and TOKEN_PROPERTY in s.summary.additional_properties
            for s in table.metadata.snapshots
        )
        sys.stdout.write(
            f"refresh endpoint {'sent' if refreshes else 'not sent'}: {outcome.outcome} {outcome.reason}, "
            f"{seconds:.1f} s, {len(tokens)} data files written with {len(set(tokens))} session tokens, "
            f"{self.tokens.given} given, {self.tokens.refused} requests refused, {commits} commits; "
            f"{'; '.join(b.message[:160] for b in outcome.batches)}\n"
        )
        wrong = []
        if table.scan().to_arrow().num_rows != rows:
            wrong.append(f"{name}: the number of rows changed")
        if refreshes:
            written = float(tokens[-1]) - float(tokens[0]) if tokens else 0.0
            if commits != 1 or written <= LIFE_SECONDS:
                wrong.append(f"{name}: {commits} commits, tokens of {written:.1f} s")
        elif commits or outcome.reason is not Reason.ENVIRONMENT:
            wrong.append(f"{name}: {commits} commits, reason {outcome.reason}")
        return wrong

    def _make(self, name: str) -> int:
        schema = Schema(NestedField(1, "p", LongType()), NestedField(2, "v", StringType()))
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
        table = self._backend.create_table(name, schema, partition_spec=spec)
        for commit in range(FILES):
            values = {"p": list(range(PARTITIONS)), "v": [f"{commit}-{p}" for p in range(PARTITIONS)]}
            table.append(pa.table(values, schema=table.schema().as_arrow()))
        return FILES * PARTITIONS
