"""A small S3 endpoint in this process: the requests that Arrow's file system makes, over a dictionary of objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from iceberg_maint_tests.support.servers.request_body import read_body, read_chunks

_PAGE_OBJECTS = 50


@dataclass
class Bucket:
    """Objects by key: content and time. `requests` counts what was asked, by method. With a `token`,
    requests with another one are denied. `is_gone`: the bucket does not exist. Copies of objects above `largest_copy`
    bytes are refused. A bulk deletion fails for `stubborn` keys. Requests that need a right of `denied` (list, get, put,
    delete) are denied. `listed` replaces what a listing has and answers. Of `short` keys half is answered, with the
    length of the half. `archived` keys cannot be copied. Unless it `is_conditional`, it knows no conditional writes; it may also ignore their conditions. It refuses the next
    `conflicts` conditional writes. Its clock is ahead by `ahead_seconds`."""

    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    token: str | None = None
    is_gone: bool = False
    largest_copy: int | None = None
    stubborn: frozenset[str] = frozenset()
    bulk_requests: int = 0
    denied: frozenset[str] = frozenset()
    is_conditional: bool = True
    ignores_conditions: bool = False
    conflicts: int = 0
    short: frozenset[str] = frozenset()
    archived: frozenset[str] = frozenset()
    listed: Callable[[Bucket, dict[str, str]], tuple[int, str]] | None = None
    ahead_seconds: float = 0

    def now(self) -> float:
        return time.time() + self.ahead_seconds


@contextmanager
def object_server() -> Iterator[tuple[str, Bucket]]:
    """The endpoint and its one bucket, whatever that is called by who asks."""
    bucket = Bucket()

    class Handler(_Handler):
        store = bucket

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Bucket

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header `Date`."""
        return formatdate(self.store.now() if timestamp is None else timestamp, usegmt=True)

    def _asked(self) -> tuple[str, dict[str, str]]:
        self.store.requests.append(self.command)
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).lstrip("/").partition("/")[2], query

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.store.is_gone:
            self._answer(404, "<Error><Code>NoSuchBucket</Code></Error>")
            return False
        known = self.store.token in (None, self.headers.get("x-amz-security-token"))
        if known and self._right() not in self.store.denied:
            return True
        self._answer(403, "<Error><Code>AccessDenied</Code></Error>")
        return False

    def _right(self) -> str:
        """The right that the request needs."""
        parts = urlsplit(self.path)
        key = unquote(parts.path).lstrip("/").partition("/")[2]
        if self.command in ("GET", "HEAD"):
            return "get" if key else "list"
        is_bulk_deletion = self.command == "POST" and "delete" in parse_qs(
            parts.query, keep_blank_values=True
        )
        return "delete" if is_bulk_deletion or self.command == "DELETE" else "put"

    def do_HEAD(self) -> None:
        key, _ = self._asked()
        found = self.store.objects.get(key)
        if key and found is None:
            self._answer(404)
            return
        content, at = found or (b"", self.store.now())
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", formatdate(at, usegmt=True))
        self.end_headers()

    def do_GET(self) -> None:
        key, query = self._asked()
        if not key:
            self._answer(*(self.store.listed or (lambda *asked: (200, listing(*asked))))(self.store, query))
        elif key not in self.store.objects:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
        else:
            content, _ = self.store.objects[key]
            wanted = self.headers.get("Range")
            part = 2 if key in self.store.short else 1
            if wanted is None:
                self._send(200, content[: len(content) // part])
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = min(int(last) + 1 if last else len(content), len(content))
            end = int(first) + (end - int(first)) // part
            self._send(206, content[int(first) : end], f"bytes {first}-{end - 1}/{len(content)}")

    def do_PUT(self) -> None:
        key, query = self._asked()
        content = self._body()
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            copied = self.store.objects.get(unquote(source).lstrip("/").partition("/")[2])
            if unquote(source).lstrip("/").partition("/")[2] in self.store.archived:
                self._answer(403, "<Error><Code>ObjectNotInActiveTierError</Code></Error>")
                return
            if copied is None:
                self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
                return
            largest = self.store.largest_copy
            if largest is not None and len(copied[0]) > largest:
                self._answer(400, "<Error><Code>InvalidRequest</Code></Error>")
                return
            self.store.objects[key] = (copied[0], self.store.now())
            self._answer(200, "<CopyObjectResult><ETag>1</ETag></CopyObjectResult>")
            return
        if self.headers.get("If-None-Match") == "*" and not self.store.is_conditional:
            self._answer(501, "<Error><Code>NotImplemented</Code></Error>")
            return
        is_conditional = self.headers.get("If-None-Match") == "*" and not self.store.ignores_conditions
        if is_conditional and self.store.conflicts:
            self.store.conflicts -= 1
            self._answer(409, "<Error><Code>ConditionalRequestConflict</Code></Error>")
            return
        if is_conditional and key in self.store.objects:
            self._answer(412, "<Error><Code>PreconditionFailed</Code></Error>")
            return
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = content
        elif key:
            self.store.objects[key] = (content, self.store.now())
        self._answer(200)

    def do_POST(self) -> None:
        key, query = self._asked()
        body = self._body().decode()
        if "uploads" in query:
            upload = f"u{len(self.store.uploads)}"
            self.store.uploads[upload] = {}
            named = f"<UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>")
        elif "uploadId" in query:
            parts = self.store.uploads.pop(query["uploadId"])
            self.store.objects[key] = (b"".join(parts[n] for n in sorted(parts)), self.store.now())
            self._answer(200, "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>")
        else:  # ?delete: several at once
            self.store.bulk_requests += 1
            entries = []
            for part in body.split("<Key>")[1:]:
                name = part.partition("</Key>")[0]
                if unescape(name) in self.store.stubborn:
                    entries.append(f"<Error><Key>{name}</Key><Code>InternalError</Code></Error>")
                else:
                    self.store.objects.pop(unescape(name), None)
                    entries.append(f"<Deleted><Key>{name}</Key></Deleted>")
            self._answer(200, f"<DeleteResult>{''.join(entries)}</DeleteResult>")

    def do_DELETE(self) -> None:
        key, _ = self._asked()
        self.store.objects.pop(key, None)
        self._answer(204)

    def _body(self) -> bytes:
        content = read_body(self)
        # The SDK's own chunks, with checksums after the last one.
        return read_chunks(BytesIO(content)) if "x-amz-decoded-content-length" in self.headers else content

    def _answer(self, status: int, document: str = "") -> None:
        self._send(status, document.encode())

    def _send(self, status: int, content: bytes, content_range: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", "1")
        self.send_header("Last-Modified", formatdate(self.store.now(), usegmt=True))
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(content)


def listing(
    bucket: Bucket, query: dict[str, str], objects: Mapping[str, tuple[bytes, float]] | None = None
) -> str:
    """ListObjectsV2 by the page, of the bucket's objects or of these."""
    objects = bucket.objects if objects is None else objects
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", query.get("start-after", ""))
    limit = min(int(query.get("max-keys", _PAGE_OBJECTS)), _PAGE_OBJECTS)
    found: dict[str, str] = {}
    for key in sorted(objects):
        rest = key[len(prefix) :]
        if not key.startswith(prefix):
            continue
        head, cut, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
        if cut:
            folder = prefix + head + delimiter
            found[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        else:
            content, at = objects[key]
            time_text = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
            found[key] = (
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                f"<LastModified>{time_text}</LastModified><ETag>1</ETag></Contents>"
            )
    page = [k for k in sorted(found) if k > after]
    more = len(page) > limit
    page = page[:limit]
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    entries = "".join(found[k] for k in page)
    return (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{token}{entries}"
        "</ListBucketResult>"
    )
