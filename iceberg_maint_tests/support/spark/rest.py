"""The tables of a workshop through a REST catalog: Iceberg's client, its handlers, and HTTP between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.qualification.chaos.rest_catalog import Handlers, Server

Answer = tuple[int, str]


class RestCatalog(Handlers):
    """The catalog's side. `before_update(body)` runs before each commit; what it returns is the answer."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'warehouse'}"
        super().__init__(bridge, uri, warehouse, backend="lake")
        self.before_update: Callable[[str], Answer | None] = lambda _body: None

    def answer(self, method: str, target: str, body: str) -> Answer:
        early = self.before_update(body) if method == "POST" and "/tables/" in target else None
        return early or super().answer(method, target, body)


@contextmanager
def rest_catalog(bridge: Bridge, folder: Path) -> Iterator[tuple[RestCatalog, Callable[[str], Any]]]:
    """The tables of the session's catalog `lake` in `folder` by REST: the server, and what loads a table."""
    handlers = RestCatalog(bridge, folder)
    server = Server(0, handlers)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = bridge.iceberg.rest.RESTCatalog()
    client.setConf(bridge.spark.sparkContext._jsc.hadoopConfiguration())
    address = f"http://127.0.0.1:{server.server_port}"
    io = "org.apache.iceberg.hadoop.HadoopFileIO"
    client.initialize("lake", bridge.map({"uri": address, "io-impl": io}.items()))

    def load(name: str) -> Any:
        return client.loadTable(bridge.iceberg.catalog.TableIdentifier.parse(name.partition(".")[2]))

    try:
        yield handlers, load
    finally:
        client.close()
        server.shutdown()
        server.server_close()
        thread.join()
