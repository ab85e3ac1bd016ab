"""A REST catalog on loopback: Iceberg's own handlers of the REST API (org.apache.iceberg.rest.CatalogHandlers)
over a JDBC catalog, behind Python's HTTP server.

    python -m iceberg_maint_tests.qualification.chaos.rest_catalog CONFIG PORT JDBC_URI WAREHOUSE [KEY=VALUE]...

KEY=VALUE are properties of the JDBC catalog.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, causes
from iceberg_maint.engines.spark.session.settings import catalog_conf
from iceberg_maint.wiring.adapters import load

_BACKEND = "rest_backend"
_SEPARATOR = "\x1f"
# As org.apache.iceberg.rest.RESTCatalogAdapter answers.
_CODES = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "IllegalArgumentException": 400,
    "CommitStateUnknownException": 500,
}


class Handlers:
    """The catalog's side of the API, for one JVM."""

    def __init__(
        self,
        bridge: Bridge,
        uri: str,
        warehouse: str,
        backend: str = _BACKEND,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._bridge = bridge
        self._rest = bridge.iceberg.rest
        prefix = f"spark.sql.catalog.{backend}."
        conf = catalog_conf(backend, "jdbc", uri, warehouse, properties or {})
        own = {k.removeprefix(prefix): v for k, v in conf.items() if k.startswith(prefix)}
        self._catalog = bridge.iceberg.CatalogUtil.buildIcebergCatalog(
            backend, bridge.map(own.items()), bridge.spark.sparkContext._jsc.hadoopConfiguration()
        )
        # The mapper that Iceberg's own client and test server use is not public.
        maker = bridge.java_class("org.apache.iceberg.rest.RESTObjectMapper")
        method = maker.getDeclaredMethod("mapper", bridge.array(bridge.jvm.java.lang.Class, []))
        method.setAccessible(True)
        self._mapper = method.invoke(None, bridge.array(bridge.jvm.java.lang.Object, []))

    def answer(self, method: str, target: str, body: str) -> tuple[int, str]:
        """Status and JSON text of one request."""
        url = urlsplit(target)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        try:
            return 200, self._route(method, parts, parse_qs(url.query), body)
        except JVM_ERRORS as error:
            name, message = next(iter(causes(error)), ("?", str(error)))
            kind = name.rpartition(".")[2]
            return _error(_CODES.get(kind, 500), kind, message)
        except LookupError:
            return _error(404, "NotFoundException", f"{method} {url.path}")

    def respond(
        self, method: str, target: str, body: str, _headers: Mapping[str, str]
    ) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of the answer to one request with these headers."""
        return *self.answer(method, target, body), {}

    def _route(self, method: str, parts: list[str], query: dict[str, list[str]], body: str) -> str:
        handlers, catalog = self._rest.CatalogHandlers, self._catalog
        match (method, *parts):
            case ("GET", "v1", "config"):
                return json.dumps({"defaults": {}, "overrides": {}})
            case ("GET", "v1", "namespaces"):
                parent = query.get("parent", [""])[0]
                return self._told(handlers.listNamespaces(catalog, self._namespace(parent)))
            case ("POST", "v1", "namespaces"):
                return self._told(handlers.createNamespace(catalog, self._asked("CreateNamespace", body)))
            case (("GET" | "HEAD"), "v1", "namespaces", namespace):
                return self._told(handlers.loadNamespace(catalog, self._namespace(namespace)))
            case ("GET", "v1", "namespaces", namespace, "tables"):
                return self._told(handlers.listTables(catalog, self._namespace(namespace)))
            case ("POST", "v1", "namespaces", namespace, "tables"):
                request = self._asked("CreateTable", body)
                make = handlers.stageTableCreate if request.stageCreate() else handlers.createTable
                return self._told(make(catalog, self._namespace(namespace), request))
            case (("GET" | "HEAD"), "v1", "namespaces", namespace, "tables", name):
                everything = getattr(self._rest, "RESTCatalogProperties$SnapshotMode").ALL
                return self._told(handlers.loadTable(catalog, self._table(namespace, name), everything))
            case ("POST", "v1", "namespaces", namespace, "tables", name):
                request = self._asked("UpdateTable", body)
                return self._told(handlers.updateTable(catalog, self._table(namespace, name), request))
            case ("DELETE", "v1", "namespaces", namespace, "tables", name):
                handlers.dropTable(catalog, self._table(namespace, name))
                return ""
            case ("POST", "v1", "namespaces", _, "tables", _, "metrics"):
                return ""
        raise LookupError

    def _asked(self, name: str, body: str) -> Any:
        kind = self._bridge.java_class(f"org.apache.iceberg.rest.requests.{name}Request")
        return self._mapper.readValue(body, kind)

    def _told(self, response: Any) -> str:
        return str(self._mapper.writeValueAsString(response))

    def _namespace(self, text: str) -> Any:
        levels = [level for level in text.split(_SEPARATOR) if level]
        return self._bridge.iceberg.catalog.Namespace.of(
            self._bridge.array(self._bridge.jvm.java.lang.String, levels)
        )

    def _table(self, namespace: str, name: str) -> Any:
        return self._bridge.iceberg.catalog.TableIdentifier.of(self._namespace(namespace), name)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet each would wait for one another's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        respond = self.server.handlers.respond
        code, text, headers = respond(self.command, self.path, body, dict(self.headers))
        data = text.encode()
        self.send_response(204 if code == 200 and not data else code)
        for key, value in headers.items():
            self.send_header(key, value)
        if data:
            self.send_header("Content-Type", "application/json")
        if data or code not in (200, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Serves the handlers on a loopback port."""

    def __init__(self, port: int, handlers: Handlers) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.handlers = handlers


def _error(code: int, kind: str, message: str) -> tuple[int, str]:
    return code, json.dumps({"error": {"message": message, "type": kind, "code": code}})


def main(config: str, port: str, uri: str, warehouse: str, *properties: str) -> None:
    bridge = Bridge(load(Path(config)).engine.spark.session())
    own = dict(p.split("=", 1) for p in properties)
    Server(int(port), Handlers(bridge, uri, warehouse, properties=own)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
