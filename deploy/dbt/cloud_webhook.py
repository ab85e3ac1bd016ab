"""Maintains what a job of dbt Cloud wrote. It listens on 127.0.0.1 for the webhook `job.run.completed`: put a proxy with TLS before it.

    python cloud_webhook.py 8085 lake iceberg-maint run --max-seconds 3000

The arguments are its port, the catalog's name in iceberg_maint.yaml, and the command that gets the names of the written tables.
It needs `DBT_CLOUD_URL`, the access URL of the account; `DBT_CLOUD_TOKEN`, a token that may read jobs; `DBT_CLOUD_WEBHOOK_SECRET`.
"""

import hmac
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

URL, TOKEN, SECRET = (os.environ[f"DBT_CLOUD_{name}"] for name in ("URL", "TOKEN", "WEBHOOK_SECRET"))
RUNS: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
"""Account and id of each ended run. dbt Cloud waits ten seconds for the answer to its webhook."""


class Webhook(BaseHTTPRequestHandler):
    """Takes an event that is signed with the secret."""

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 2**20))
        signature = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
        good = hmac.compare_digest(signature.encode(), self.headers.get("Authorization", "").encode())
        if good and (event := json.loads(body))["eventType"] == "job.run.completed":
            RUNS.put((int(event["accountId"]), int(event["data"]["runId"])))
        self.send_response(200 if good else 401)
        self.end_headers()


def maintain(account: int, run: int, catalog: str, command: list[str]) -> None:
    """Calls the command with the tables that the last step of a run wrote."""
    with tempfile.TemporaryDirectory() as target:
        for name in ("manifest.json", "run_results.json"):
            url = f"{URL}/api/v2/accounts/{account}/runs/{run}/artifacts/{name}"
            token = {"Authorization": f"Token {TOKEN}"}
            with urllib.request.urlopen(urllib.request.Request(url, headers=token), timeout=60) as answer:  # noqa: S310
                Path(target, name).write_bytes(answer.read())
        listing = [sys.executable, f"{Path(__file__).parent}/written_tables.py", target, "--catalog", catalog]
        tables = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    if tables:
        subprocess.run([*command, *tables], check=True)


def main() -> None:
    """Maintains one run after another. What fails is printed."""
    port, catalog, *command = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        try:
            maintain(*RUNS.get(), catalog, command)
        except (OSError, ValueError, subprocess.CalledProcessError):
            traceback.print_exc()


if __name__ == "__main__":
    main()
