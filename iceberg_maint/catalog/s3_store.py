"""S3 by its own requests: listings page by page, conditional writes, deletions in bulk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem

from iceberg_maint.catalog.arrow_store import ArrowStore
from iceberg_maint.catalog.store_service import RETRIES_CLASS, RETRIES_PROPERTY, denied, unavailable
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.storage import StoredFile

TRIES = 5
"""Arrow's own default is three: a burst of `503 SlowDown` lasts longer."""


class S3Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """How often Arrow repeats a request that S3 throttles or answers by an error of its own. PyIceberg makes it from its name
    in the property `s3.retry-strategy-impl`."""

    def __init__(self) -> None:
        super().__init__(max_attempts=TRIES)


_SCHEMES = ("s3://", "s3a://", "s3n://")
_KEYS_PER_REQUEST = 1_000
_DENIED = ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
_LARGEST_PUT_BYTES = 8 * 1024 * 1024
_EXISTS, _CONFLICT = 412, 409
_CONDITION_UNKNOWN = (400, 405, 501)
"""What a store answers that has no conditional writes. If the request is wrong for another reason, Arrow's fails too."""
_CONFLICTS = 3
_BAD_REQUEST = 400
_TRIES = 6
_REPEATED_PAGES = 3
"""The most pages in a row that a listing may repeat."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ARROW_ONLY = (
    "s3.role-arn",
    "client.role-arn",
    "s3.anonymous",
    "s3.signer",
    "s3.proxy-uri",
)
"""Properties that decide with whose permissions or by which way Arrow asks. boto3 might ask with other permissions."""


def s3_store(
    properties: Callable[[], Mapping[str, Any]],
    location: str,
    resolve: Callable[[str], tuple[FileSystem, str]],
) -> S3Store | None:
    """Returns the store of an S3 location, None if boto3 is not installed or cannot be given the same credentials
    and endpoint as Arrow."""
    if (
        not location.startswith(_SCHEMES)
        or set("?#") & set(location)
        or any(properties().get(key) for key in _ARROW_ONLY)
        or properties().get(RETRIES_PROPERTY) not in (None, "", RETRIES_CLASS)
    ):
        return None
    bucket = location.partition("://")[2].partition("/")[0]
    # A directory bucket lists in no order and answers other errors.
    if bucket.endswith("--x-s3"):
        return None
    try:
        import boto3  # noqa: F401
    except ImportError:
        return None
    system, _ = resolve(location)
    return S3Store(resolve, properties, system.region) if isinstance(system, S3FileSystem) else None


class S3Store(ArrowStore):
    """An S3 bucket. `properties` returns those of the FileIO with its newest credentials."""

    bulk = _KEYS_PER_REQUEST
    resumes = True

    def __init__(
        self,
        resolve: Callable[[str], tuple[FileSystem, str]],
        properties: Callable[[], Mapping[str, Any]],
        region: str,
    ) -> None:
        super().__init__(resolve)
        self._properties, self._region = properties, region
        self._lock = threading.Lock()
        self._client_and_settings: tuple[Any, tuple[Any, ...]] | None = None

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yields every file below the prefix, page by page. A key that ends with a slash is a folder's marker."""
        return self.list_after(prefix, "")

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        """Yields the files below the prefix in the order of S3, from the first one behind the path `after`. An empty
        path means all files."""
        base = prefix.rstrip("/")
        bucket, root = _bucket_and_key(base)
        query = {"Bucket": bucket, "Prefix": f"{root}/" if root else "", "MaxKeys": _KEYS_PER_REQUEST}
        if after:
            query["StartAfter"] = root + after[len(base) :]
        pages = _Pages(prefix, lambda query: self._client().list_objects_v2(**query))
        for entry in pages.entries(query):
            if not entry["Key"].endswith("/"):
                modified_ms = (entry["LastModified"] - _EPOCH) // _MILLISECOND
                yield StoredFile(base + entry["Key"][len(root) :], entry["Size"], modified_ms)

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new object. Of two writers one succeeds: S3 itself refuses an object that exists. It is looked for
        first: some stores ignore the condition and replace the object. A large object, and one in a store
        that refuses the condition, is only looked for."""
        content, rest = bytearray(), iter(lines)
        for line in rest:
            content += line
            if len(content) > _LARGEST_PUT_BYTES:
                super().create(path, chain((bytes(content),), rest))
                return
        if not self._put_new(path, bytes(content)):
            super().create(path, (bytes(content),))

    def _put_new(self, path: str, content: bytes) -> bool:
        """Returns False if the store does not know the condition. Raises FileExistsError."""
        from botocore.exceptions import ClientError

        bucket, key = _bucket_and_key(path)
        with _answered(path):
            for _ in range(_CONFLICTS if self.stat(path) is None else 0):
                try:
                    self._client().put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
                except ClientError as error:
                    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                    if status in _CONDITION_UNKNOWN:
                        return False
                    if status == _EXISTS:
                        break
                    if status != _CONFLICT:
                        raise
                else:
                    return True
        # A request whose answer was lost is sent again, and finds its own object.
        if self.read(path, len(content) + 1) != content:
            raise FileExistsError(path)
        return True

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes up to `bulk` files of one bucket by one request. Returns those that the store may still have."""
        keys = {_bucket_and_key(path)[1]: path for path in paths}
        buckets = {_bucket_and_key(path)[0] for path in paths}
        if len(buckets) != 1 or len(keys) != len(paths):
            return frozenset(paths)
        from botocore.exceptions import BotoCoreError, ClientError

        objects = [{"Key": key} for key in keys]
        try:
            answer = self._client().delete_objects(Bucket=buckets.pop(), Delete={"Objects": objects})
        except (ClientError, BotoCoreError):
            return frozenset(paths)  # each is deleted by a request of its own, which reports the error
        gone = {entry.get("Key") for entry in answer.get("Deleted", ())}
        failed = {entry.get("Key") for entry in answer.get("Errors", ())}
        return frozenset(path for key, path in keys.items() if key not in gone or key in failed)

    def tidy(self, folder: str) -> None:
        """Deletes the markers of the folder and of those below it if they hold no file. Only listed markers go: a file
        that another program writes after the listing stays."""
        base = folder.rstrip("/")
        bucket, root = _bucket_and_key(base)
        query = {"Bucket": bucket, "Prefix": f"{root}/", "MaxKeys": _KEYS_PER_REQUEST}
        pages = _Pages(folder, lambda query: self._client().list_objects_v2(**query))
        markers = []
        for entry in pages.entries(query):
            if not entry["Key"].endswith("/") or entry["Size"]:
                return
            markers.append(f"{base}{entry['Key'][len(root) :]}")
        for start in range(0, len(markers), _KEYS_PER_REQUEST):
            self.delete_bulk(markers[start : start + _KEYS_PER_REQUEST])

    def _client(self) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.session import get_session

        properties = self._properties()
        values = tuple(
            properties.get(f"s3.{key}") or properties.get(f"client.{key}")
            for key in ("access-key-id", "secret-access-key", "session-token")
        )
        endpoint, timeouts = properties.get("s3.endpoint"), _timeouts(properties)
        is_virtual = str(properties.get("s3.force-virtual-addressing", "false")).lower() == "true"
        settings = (*values, endpoint, is_virtual, *timeouts.items())
        with self._lock:
            if self._client_and_settings is None or self._client_and_settings[1] != settings:
                style = "virtual" if is_virtual else "path" if endpoint else "auto"
                session = get_session()
                parsers = session.get_component("response_parser_factory")
                parsers.set_parser_defaults(timestamp_parser=_parsed_time)
                client = boto3.session.Session(botocore_session=session).client(
                    "s3",
                    region_name=self._region or None,
                    endpoint_url=endpoint,
                    aws_access_key_id=values[0],
                    aws_secret_access_key=values[1],
                    aws_session_token=values[2],
                    config=Config(
                        s3={"addressing_style": style},
                        request_checksum_calculation="when_required",
                        response_checksum_validation="when_required",
                        retries={"mode": "standard", "total_max_attempts": _TRIES},
                        **timeouts,
                    ),
                )
                self._client_and_settings = client, settings
            return self._client_and_settings[0]


class _Pages:
    """The pages of one listing. `ask` sends one request with the credentials of the moment."""

    def __init__(self, prefix: str, ask: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._prefix, self._ask = prefix, ask
        self._begun: set[int] = set()
        self._last = ""

    def entries(self, query: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the entries of all pages. A page that the store repeats is skipped. Raises IcebergMaintError ICM-133
        if the store does not serve, ICM-153 if the listing does not end, RefusedError ICM-125."""
        repeated = 0
        while True:
            page = self._page(query)
            entries = page.get("Contents", ())
            if self._is_new(entries):
                repeated = 0
                yield from entries
            else:
                repeated += 1
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == query.get("ContinuationToken") or repeated > _REPEATED_PAGES:
                raise contradiction(f"the listing of {self._prefix} does not end: it has no next page")
            query["ContinuationToken"] = token

    def _page(self, query: dict[str, Any]) -> Mapping[str, Any]:
        from botocore.exceptions import ClientError

        with _answered(self._prefix):
            try:
                return self._ask(query)
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if "ContinuationToken" not in query or status != _BAD_REQUEST or _is_denial(error):
                    raise
                # The token is too old. A listing has the order of the keys, so it goes on behind the last one.
                del query["ContinuationToken"]
                if self._last:
                    query["StartAfter"] = self._last
                return self._ask(query)

    def _is_new(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        if not entries:
            return True
        first = hash(entries[0]["Key"])
        if first in self._begun:
            return False
        self._begun.add(first)
        self._last = entries[-1]["Key"]
        return True


def contradiction(message: str) -> IcebergMaintError:
    """Returns the error for a store whose listing contradicts itself or its other answers."""
    return IcebergMaintError(
        "ICM-153", f"{message}.", "run again later; if it stays so, ask the operator of the store."
    )


def _timeouts(properties: Mapping[str, Any]) -> dict[str, float]:
    names = {"connect_timeout": "s3.connect-timeout", "read_timeout": "s3.request-timeout"}
    return {name: float(properties[key]) for name, key in names.items() if properties.get(key)}


def _parsed_time(text: Any) -> datetime:
    """Returns the time of an answer. boto3's own parser takes most of the time of a listing."""
    from botocore.utils import parse_timestamp

    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        time = parse_timestamp(text)
    if time.tzinfo is None:
        time = parse_timestamp(text)
    return time


def _bucket_and_key(location: str) -> tuple[str, str]:
    bucket, _, key = location.partition("://")[2].partition("/")
    return bucket, key


def _is_denial(error: Any) -> bool:
    return str(error.response.get("Error", {}).get("Code")) in _DENIED


@contextmanager
def _answered(location: str) -> Iterator[None]:
    """Turns boto3's errors into those of the other stores."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise denied(location, error) if _is_denial(error) else unavailable(location, error) from error
    except BotoCoreError as error:
        raise unavailable(location, error) from error
