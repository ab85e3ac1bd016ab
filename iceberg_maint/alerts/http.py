"""Sends JSON over HTTP with a timeout. Follows no redirect: a receiver is the address in the configuration."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping

_MOST_RESPONSE_BYTES = 2000


_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler(),
    urllib.request.HTTPHandler(),
    urllib.request.HTTPSHandler(),
    urllib.request.HTTPErrorProcessor(),
    urllib.request.HTTPDefaultErrorHandler(),
):
    _OPENER.add_handler(_handler)


def post_json(url: str, document: object, headers: Mapping[str, str], seconds: float) -> None:
    """Posts a document. Raises OSError (urllib's URLError and HTTPError) if the receiver does not take it."""
    body = json.dumps(document, ensure_ascii=True).encode()
    request = urllib.request.Request(  # noqa: S310 - the configuration allows http and https only
        url, body, {**headers, "Content-Type": "application/json"}, method="POST"
    )
    with _OPENER.open(request, timeout=seconds) as response:
        response.read(_MOST_RESPONSE_BYTES)
