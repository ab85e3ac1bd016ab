"""The command `telemetry serve`: serve the metrics of the fleet."""

from __future__ import annotations

import signal
import threading
import time

import click

from iceberg_maint.cli.command import command, group
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import ConfigurationError

DEFAULT_LISTEN = "127.0.0.1:9464"


@group
def telemetry() -> None:
    """Metrics of the fleet."""


@telemetry.command("serve", short_help="Serve the metrics of the fleet to Prometheus.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Address; default: telemetry.prometheus.listen. Loopback only."
)
@command
def serve(session: Session, listen: str | None) -> int:
    """Serve the metrics of the fleet to Prometheus until a signal ends the program.

    The numbers come from the ledger. No catalog is read.
    """
    from iceberg_maint.config.sections import listen_address
    from iceberg_maint.integrations.telemetry import ledger_totals, require_client

    require_client("prometheus")
    from iceberg_maint.integrations.telemetry.prometheus import serve as serve_page

    config = session.config().telemetry
    if listen is None and config is not None and config.prometheus is not None:
        host, port = config.prometheus.host, config.prometheus.port
    else:
        host, port = listen_address(listen or DEFAULT_LISTEN, "--listen", allow_remote=False)
    totals = ledger_totals(session.context(), config.max_tables if config is not None else 1000)
    totals()
    try:
        server, port = serve_page(host, port, totals)
    except OSError as why:
        raise ConfigurationError(
            "ICM-100",
            f"cannot listen on {host}:{port}: {why.strerror or why}.",
            "choose another address with --listen.",
        ) from why
    session.say(f"serving http://{host}:{port}/metrics")
    try:
        _wait_for_signal()
    finally:
        server.shutdown()
        server.server_close()
    return 0


def _wait_for_signal() -> None:
    """Returns at SIGINT or SIGTERM. Outside the main thread it never returns."""
    if threading.current_thread() is not threading.main_thread():
        while True:
            time.sleep(3600)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    while not ended.wait(0.5):
        pass
