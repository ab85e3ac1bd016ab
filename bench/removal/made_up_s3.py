"""An S3 endpoint that makes its objects up: one table of many files, and a trash batch of many files.

It answers ListObjectsV2 by pages of 1,000 keys, DeleteObjects, and the writing of single objects, which it forgets. It counts the requests of each kind and runs in a
process of its own, so its memory and time are not those of the program that is measured.
"""

from __future__ import annotations

import json
import sys
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, quote, urlsplit

from iceberg_maint_tests.support.servers.request_body import read_body

PAGE = 1_000
MARK = "1767225600000-made-up"
TRASH = f".iceberg-maint-trash/files/{MARK}/"


def name(n: int) -> str:
    """The path of a data file below its table, in the order of their numbers."""
    return f"data/day=2026-01-{n // 40_000:02d}/{n // 1_000 % 1_000:03d}/{n:08d}-0-4f0d6c1e-{n:012x}.parquet"


class Handler(BaseHTTPRequestHandler):
    """The bucket's objects are below `w/t/`: the data files `first` to `last`, or the same in the trash."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    requests: ClassVar[dict[str, int]] = {}
    gone = bytearray()

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """A page of a listing, or the counts."""
        parts = urlsplit(self.path)
        if parts.path == "/counts":
            self._answer(json.dumps(self.requests))
            return
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self._count("LIST TABLE" if query["prefix"] == "w/t/" else "LIST")
        keys: list[str] = []
        prefix, at = query["prefix"], int(query.get("continuation-token", 0))
        trashed = prefix.startswith("w/t/.iceberg-maint-trash/files")
        base = f"w/t/{TRASH}" if trashed else prefix
        if prefix in ("w/t/", f"w/t/{TRASH}"):
            while at < len(self.gone) and len(keys) < PAGE:
                if not (trashed and self.gone[at]):
                    keys.append(quote(base + name(at)))
                at += 1
        more = at < len(self.gone) and bool(keys)
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        token = f"<NextContinuationToken>{at}</NextContinuationToken>" if more else ""
        self._answer(
            f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{entries}</ListBucketResult>"
        )

    def do_HEAD(self) -> None:
        """The object that measures the store's clock."""
        self._count("HEAD")
        self._answer("")

    def do_PUT(self) -> None:
        """An object, or a part of one."""
        read_body(self)
        self._count("PUT")
        self._answer("")

    def do_DELETE(self) -> None:
        """The deletion of one object."""
        self._count("DELETE ONE")
        self.send_response(204)
        self.end_headers()

    def do_POST(self) -> None:
        """A bulk deletion, or an upload in parts."""
        body = read_body(self).decode()
        query = urlsplit(self.path).query
        if "upload" in query:
            self._count("PUT")
            kind = "CompleteMultipartUploadResult" if "uploadId" in query else "InitiateMultipartUploadResult"
            self._answer(f"<{kind}><UploadId>u</UploadId><ETag>1</ETag></{kind}>")
            return
        self._count("DELETE")
        keys = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        for key in keys:
            self.gone[int(key.rpartition("/")[2][:8])] = 1
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(f"<DeleteResult>{deleted}</DeleteResult>")

    def _count(self, kind: str) -> None:
        self.requests[kind] = self.requests.get(kind, 0) + 1

    def _answer(self, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", "1")
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Serves until the process is ended. Prints the port."""
    Handler.gone = bytearray(int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
