"""A server that speaks dbt Cloud's API sends its webhook. dbt Cloud itself was not asked."""

import hmac
import json
import sys
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.support.servers.alertmanager import wait_until
from iceberg_maint_tests.support.servers.programs import free_port, process

EVENT = b'{"accountId": 7, "eventType": "job.run.completed", "data": {"runId": "42"}}'
NODES = {"m": {"schema": "dbt", "name": "events", "config": {"materialized": "table"}}}


class Api(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        super().do_GET() if self.headers["Authorization"] == "Token abc" else self.send_error(401)


def posted(port: int, secret: bytes) -> int:
    with suppress(ConnectionRefusedError):
        caller = HTTPConnection("127.0.0.1", port)
        caller.request("POST", "/", EVENT, {"Authorization": hmac.new(secret, EVENT, "sha256").hexdigest()})
        return caller.getresponse().status
    return 0


def test_webhook_of_an_ended_run_maintains_the_tables_that_the_run_wrote(tmp_path: Path) -> None:
    artifacts = tmp_path / "api" / "v2" / "accounts" / "7" / "runs" / "42" / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / "manifest.json").write_text(json.dumps({"nodes": NODES}))
    (artifacts / "run_results.json").write_text('{"results": [{"unique_id": "m", "status": "success"}]}')
    port, log = free_port(), tmp_path / "log"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Api, directory=str(tmp_path))) as api:
        Thread(target=api.serve_forever).start()
        url = f"http://127.0.0.1:{api.server_port}"
        environment = {
            "DBT_CLOUD_URL": url,
            "DBT_CLOUD_TOKEN": "abc",
            "DBT_CLOUD_WEBHOOK_SECRET": "the-secret",
        }
        script = [sys.executable, str(PROJECT / "deploy" / "dbt" / "cloud_webhook.py"), str(port), "lake"]
        with process([*script, "echo", "run"], log, environment):
            wait_until(lambda: posted(port, b"another") == 401)
            assert posted(port, b"the-secret") == 200
            wait_until(lambda: "run lake.dbt.events\n" in log.read_text())
        api.shutdown()
