"""PyIceberg's client of a REST catalog, whose requests wait, are repeated and end.

PyIceberg repeats a request only with a new token. Here a request that the server does not serve now (429, 503) is repeated,
and a read also after 500, 502, 504 and a connection that broke. A server that has not answered yet gets no second chance.

This module alone uses private names of PyIceberg. It has no public way to give the client a session, to load a table's
location without its metadata, or to leave a table's own properties out of its FileIO.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pyiceberg.catalog import _ENV_CONFIG
from pyiceberg.catalog.rest import (
    PAGE_SIZE,
    Endpoints,
    ListNamespaceResponse,
    RestCatalog,
    TableResponse,
)
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.config import merge_config
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ConnectionError as BrokenConnectionError
from requests.exceptions import HTTPError

from iceberg_maint.catalog.approved_io import guard_of
from iceberg_maint.catalog.rights import refuse_restricted
from iceberg_maint.catalog.service_calls import CallBudget

T = TypeVar("T")

WAITS_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""The waits before the second request and those after it."""
LONGEST_WAIT_SECONDS = 30.0
"""A server that asks for a longer wait (`Retry-After`) is not waited for."""
TIMEOUT_SECONDS = (10.0, 180.0)
"""For a connection, and between two parts of an answer. PyIceberg waits without end."""
FIRST_TIMEOUT_SECONDS = (10.0, 30.0)
"""The same until the server has answered once: another service may listen at a wrong address, and say nothing."""
TAG_SECONDS = 3600.0
"""How long an ETag is used."""

# The keys before a type in a schema's JSON (spec: "Schemas"), and the types.
_UNPARSED_TYPES = re.compile(
    rb'("(?:type|element|key|value)"\s*:\s*)"(?:variant|(?:geometry|geography)\s*\([^"]*\))"'
)
_ANY_METHOD = frozenset({429, 503})
_READS = _ANY_METHOD | {500, 502, 504}
_NOT_MODIFIED = 304


class PatientAdapter(BaseAdapter):
    """Sends requests through another adapter. Every try counts against the catalog's budget. `has_answered` says
    whether the server has answered this catalog before."""

    def __init__(
        self,
        inner: BaseAdapter,
        calls: CallBudget,
        has_answered: list[bool],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._inner, self._calls, self._has_answered, self._sleep = inner, calls, has_answered, sleep

    def send(self, request: PreparedRequest, **settings: Any) -> Response:  # type: ignore[override]
        """Returns the answer to the last try."""
        if settings.get("timeout") is None:
            settings["timeout"] = TIMEOUT_SECONDS if self._has_answered else FIRST_TIMEOUT_SECONDS
        reads = request.method in ("GET", "HEAD")
        for pause in WAITS_SECONDS:
            wait = pause
            self._calls.take()
            try:
                response = self._inner.send(request, **settings)
            except BrokenConnectionError:
                if not (reads and self._has_answered):
                    raise
            else:
                self._has_answered[:] = [True]
                asked = _retry_after(response)
                if response.status_code not in (_READS if reads else _ANY_METHOD):
                    return response
                if asked > LONGEST_WAIT_SECONDS:
                    return response
                response.close()
                wait = max(wait, asked)
            self._sleep(wait)
        self._calls.take()
        return self._inner.send(request, **settings)

    def close(self) -> None:
        """Closes the connections."""
        self._inner.close()


def _retry_after(response: Response) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0


@dataclass(frozen=True, slots=True)
class _Tagged:
    tag: str
    location: str
    until_seconds: float


class PatientRestCatalog(RestCatalog):
    """PyIceberg's REST catalog over `PatientAdapter`s. Requests for tokens go through them too. As many threads as there are
    `connections` may use it without waiting for one."""

    def __init__(
        self, name: str, calls: CallBudget, properties: Mapping[str, str], connections: int = 1
    ) -> None:
        self._calls, self._has_answered = calls, list[bool]()
        self._connections = connections
        self._lock = threading.Lock()
        self._tags: dict[tuple[str, ...], _Tagged] = {}
        self._refreshing = threading.Lock()
        self._tokens = 0
        self._thread = threading.local()
        self._guard = guard_of(properties)
        super().__init__(name, **properties)

    def location_of(self, identifier: tuple[str, ...], *, is_new: bool = False) -> str:
        """Returns the metadata location of a table, without its metadata. A server that gave an ETag with the last
        answer is asked whether that has changed (REST specification: loadTable), unless the answer must be new. Raises
        what `load_table` raises."""
        if is_new:
            with self._lock:
                self._tags.pop(identifier, None)
        return self._with_token(lambda: self._location_of(identifier))

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """Returns the table with a FileIO that has the catalog's properties and what the server gives with the table.
        PyIceberg adds the table's own properties: a writer of the table would choose the endpoint of the store, the
        credentials and the class of the FileIO, and could take away the catalog's approved locations."""
        metadata = table_response.metadata.model_copy(update={"properties": {}})
        return super()._response_to_table(
            identifier_tuple, table_response.model_copy(update={"metadata": metadata})
        )

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io({**properties, **self._guard}, location)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Returns the namespaces below one, or the outermost. PyIceberg encodes the parent twice, so a server does not know
        one with a space or another letter, and no table of the catalog would be listed."""
        parent = self._namespace_separator.join(self.identifier_to_tuple(namespace))
        params = {"parent": parent} if parent else {}
        if size := self.properties.get(PAGE_SIZE):
            params["pageSize"] = str(size)
        found: list[Identifier] = []
        while True:
            page = self._with_token(lambda: self._namespaces(params))
            found.extend(page.namespaces)
            if not page.next_page_token:
                return found
            params["pageToken"] = page.next_page_token

    def _namespaces(self, params: Mapping[str, str]) -> ListNamespaceResponse:
        response = self._session.get(self.url(Endpoints.list_namespaces), params=params)
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {404: NoSuchNamespaceError})
        return ListNamespaceResponse.model_validate_json(response.content)

    def _with_token(self, work: Callable[[], T]) -> T:
        self._thread.tokens = self._tokens
        try:
            return work()
        except (UnauthorizedError, AuthorizationExpiredError):
            self._refresh_token()
            return work()

    def _refresh_token(self) -> None:
        """Gets a new token, unless another thread has done so since this one began its request."""
        with self._refreshing:
            if getattr(self._thread, "tokens", self._tokens) == self._tokens:
                super()._refresh_token()
                self._tokens += 1
            self._thread.tokens = self._tokens

    def load_table(self, identifier: str | Identifier) -> Table:
        """Returns the table. PyIceberg repeats the request with a new token."""
        self._thread.tokens = self._tokens
        return cast("Table", super().load_table(identifier))

    def _location_of(self, identifier: tuple[str, ...]) -> str:
        with self._lock:
            known = self._tags.get(identifier)
        if known is not None and time.monotonic() > known.until_seconds:
            known = None
        response = self._session.get(
            self.url(Endpoints.load_table, **self._split_identifier_for_path(identifier)),
            params={"snapshots": "refs"},
            headers={} if known is None else {"If-None-Match": known.tag},
        )
        if known is not None and response.status_code == _NOT_MODIFIED:
            return known.location
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {404: NoSuchTableError})
        location = str(json.loads(response.content)["metadata-location"])
        tag = response.headers.get("ETag")
        with self._lock:
            self._tags.pop(identifier, None)
            if tag:
                self._tags[identifier] = _Tagged(tag, location, time.monotonic() + TAG_SECONDS)
        return location

    def _create_session(self) -> Session:
        session = self._patient(super()._create_session())
        session.hooks["response"].extend((refuse_restricted, _without_unparsed_types))
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # It asks for a token at once, before the session is returned.
        return super()._create_legacy_oauth2_auth_manager(self._patient(session))

    def _patient(self, session: Session) -> Session:
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, PatientAdapter):
                if type(adapter) is HTTPAdapter:
                    adapter.init_poolmanager(adapter._pool_connections, max(self._connections, 10))
                session.mount(prefix, PatientAdapter(adapter, self._calls, self._has_answered))
        return session


def load_rest_catalog(
    name: str, properties: Mapping[str, Any], calls: CallBudget, connections: int
) -> PatientRestCatalog:
    """Returns PyIceberg's REST catalog, with the settings that PyIceberg finds in its own files and variables, as its
    `load_catalog`. Raises what that raises."""
    settings = merge_config(_ENV_CONFIG.get_catalog_config(name) or {}, dict(properties))
    return PatientRestCatalog(name, calls, cast("Mapping[str, str]", settings), connections)


def _without_unparsed_types(response: Response, **_settings: Any) -> None:
    """Replaces types that PyIceberg does not parse in what a REST catalog answers. Only location and FileIO of
    the answer are used; columns are read from the metadata file itself."""
    if _UNPARSED_TYPES.search(response.content):
        response._content = _UNPARSED_TYPES.sub(rb'\1"unknown"', response.content)
