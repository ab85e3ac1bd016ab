"""The body of an HTTP request that a server of the standard library handles."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import IO


def read_body(request: BaseHTTPRequestHandler) -> bytes:
    """Returns the body, in chunks or of the length that the header states."""
    if "chunked" in request.headers.get("Transfer-Encoding", ""):
        return read_chunks(request.rfile)
    return request.rfile.read(int(request.headers.get("Content-Length", 0)))


def read_chunks(stream: IO[bytes]) -> bytes:
    """Returns the content of a chunked stream (RFC 9112, section 7.1) and skips its trailer."""
    content = b""
    while size := int(stream.readline().split(b";")[0], 16):
        content += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return content
