"""The commands `telemetry`."""

from __future__ import annotations

import socket

from iceberg_maint_tests.cli.conftest import Lake


def test_serve_refuses_an_address_of_other_machines(lake: Lake) -> None:
    result = lake("telemetry", "serve", "--listen", "0.0.0.0:0")
    assert result.exit_code == 2
    assert "ICM-127 --listen is '0.0.0.0:0', which other machines can reach." in result.stderr


def test_serve_on_a_port_that_is_taken_is_one_line(lake: Lake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = lake("telemetry", "serve", "--listen", f"127.0.0.1:{port}")
    assert result.exit_code == 2
    assert f"ICM-100 cannot listen on 127.0.0.1:{port}: Address already in use." in result.stderr
