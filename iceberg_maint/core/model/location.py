"""Compares locations of files: equivalent schemes and authorities, and normalized paths.

Iceberg stores locations as text, and object stores take them literally. Two spellings of one file can
therefore exist. The search for orphan files compares locations: it must treat two spellings that may name
one file as the same file, never as two files.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote, unquote_to_bytes

from iceberg_maint.core.model.table_state import TableState

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(.*)", re.DOTALL)
_WRITE_PATHS = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.metadata.path",
)
"""Table properties that send files to other locations (Iceberg's `LocationProviders`, `TableProperties`)."""


@dataclass(frozen=True, slots=True)
class Equivalences:
    """Schemes and authorities (bucket, host) that name the same store. Maps each spelling to its
    canonical one."""

    schemes: Mapping[str, str] = field(default_factory=lambda: {"s3a": "s3", "s3n": "s3"})
    authorities: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location. `store` is `scheme://authority` after the equivalences; `path` is as written."""

    store: str
    path: str

    @property
    def key(self) -> bytes:
        """The key that represents the path in comparisons. All spellings of one path have the same key."""
        return path_key(self.path)

    @property
    def is_local(self) -> bool:
        """Whether the location is on the local file system."""
        return self.store.startswith("file:")


def equivalences(schemes: Iterable[str], authorities: Iterable[str]) -> Equivalences:
    """Parses texts of the form `spelling=canonical`. Raises ValueError for a text of another form, and
    for a spelling that is also the canonical one of another."""
    return Equivalences(_pairs(schemes, fold=True), _pairs(authorities, fold=False))


def _pairs(texts: Iterable[str], *, fold: bool) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        spelling, equals, taken_for = (text.lower() if fold else text).partition("=")
        if not (spelling and equals and taken_for) or "=" in taken_for:
            raise ValueError(f"'{text}' is not of the form spelling=canonical")
        pairs[spelling] = taken_for
    if chained := pairs.keys() & set(pairs.values()):
        raise ValueError(
            f"'{min(chained)}' stands on both sides: as a spelling and as the canonical one of another"
        )
    return pairs


def parse_location(text: str, same: Equivalences) -> Location:
    """Splits a location. A bare absolute path gets the scheme `file`. `?` and `#` are part of the path.
    Raises ValueError for a text that is neither a URI nor an absolute path."""
    scheme, authority, path = _parts(text)
    return Location(_store(scheme, authority, same), path)


def _store(scheme: str, authority: str, same: Equivalences) -> str:
    return f"{same.schemes.get(scheme, scheme)}://{same.authorities.get(authority, authority)}"


def _parts(text: str) -> tuple[str, str, str]:
    match = _URI.fullmatch(text)
    if match is None and not text.startswith("/"):
        raise ValueError(f"'{text}' is neither a URI nor an absolute path")
    scheme, authority, path = match.groups() if match is not None else ("file", "", text)
    if not path.startswith("/") and path:
        raise ValueError(f"'{text}' has no absolute path")
    return scheme.lower(), authority or "", path


def cut_path(path: str) -> str:
    """Returns the path up to the first `?` or `#`. Iceberg's S3FileIO and PyIceberg look for this object, other clients
    for that of the whole path."""
    return path.partition("?")[0].partition("#")[0]


def path_key(path: str) -> bytes:
    """Returns the path percent-decoded, in one Unicode form and case, without empty and dot segments.

    Two files whose paths differ in nothing else count as one file. An orphan with such a path stays.
    """
    # Most paths are plain. This runs once per file of a table.
    if not path.isascii() or "%" in path:
        decoded = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        path = unicodedata.normalize("NFC", unicodedata.normalize("NFC", decoded).casefold())
    else:
        path = path.lower()
    if "//" in path or "/." in path or path.endswith("/"):
        path = "/" + "/".join(_resolved(path.split("/")))
    return path.encode("utf-8", "surrogateescape")


def _resolved(segments: Iterable[str]) -> list[str]:
    resolved: list[str] = []
    for segment in segments:
        if segment == "..":
            del resolved[-1:]
        elif segment not in ("", "."):
            resolved.append(segment)
    return resolved


def is_within(inner: Location, outer: Location) -> bool:
    """Returns whether `inner` is `outer` or lies below it."""
    below = outer.key.rstrip(b"/") + b"/"
    return inner.store.casefold() == outer.store.casefold() and (inner.key.rstrip(b"/") + b"/").startswith(
        below
    )


def is_root(location: Location) -> bool:
    """Returns whether the location is a whole bucket or file system."""
    return location.key.strip(b"/") == b""


@dataclass(frozen=True, slots=True)
class LocationOwner:
    """The locations that a table writes files to. The table's own location is first.

    `current_until_ms` is None if the owner is that of the current metadata. Otherwise these cannot be read, and the
    owner is the last one, which was current at that time.
    """

    table: str
    table_uuid: str
    locations: tuple[str, ...]
    current_until_ms: int | None = None


def location_owner_of(state: TableState) -> LocationOwner:
    """Returns the owner of a pinned table; see `location_owner`."""
    return location_owner(
        str(state.table), state.uuid, state.location, state.properties, state.metadata_location
    )


def location_owner(
    table: str,
    table_uuid: str,
    location: str,
    properties: Mapping[str, str],
    metadata_location: str,
    folders: Iterable[str] = (),
) -> LocationOwner:
    """Returns the locations that a table owns: its location, the paths in its properties, the folder of
    its metadata file, and other folders that hold its files."""
    folder = metadata_location.rpartition("/")[0]
    write_paths = [properties[p] for p in _WRITE_PATHS if properties.get(p)]
    return LocationOwner(table, table_uuid, tuple(dict.fromkeys((location, *write_paths, folder, *folders))))


def outside(owner: LocationOwner, prefixes: Iterable[str], same: Equivalences) -> tuple[str, ...]:
    """Returns the locations of an owner that lie below none of the prefixes. Raises ValueError; see
    `parse_location`."""
    within = [parse_location(p, same) for p in prefixes]
    return tuple(
        text for text in owner.locations if not any(is_within(parse_location(text, same), p) for p in within)
    )


def overlaps(
    prefixes: Iterable[str], others: Iterable[LocationOwner], same: Equivalences
) -> Iterator[tuple[str, LocationOwner, str]]:
    """Yields (prefix, owner, location) for each location of another table that equals, contains or lies
    below a prefix. Raises ValueError; see `parse_location`."""
    own = [(text, *_folder(text)) for text in prefixes]
    for owner in others:
        for owned in owner.locations:
            store, folder = _folder(owned)
            for text, own_store, own_folder in own:
                if (folder.startswith(own_folder) or own_folder.startswith(folder)) and (
                    store == own_store
                    or _store(*store, same).casefold() == _store(*own_store, same).casefold()
                ):
                    yield text, owner, owned


@lru_cache(maxsize=100_000)
def _folder(text: str) -> tuple[tuple[str, str], bytes]:
    """Scheme and authority of a location, and its key with a slash at the end. A scan of each of many tables compares
    the locations of all."""
    scheme, authority, path = _parts(text)
    return (scheme, authority), path_key(path).rstrip(b"/") + b"/"


LOCATION_PROVIDER = "write.location-provider.impl"
"""Table property that names a class that chooses the location of new files (Iceberg's `LocationProviders`)."""

_APPROVED_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class ApprovedLocations:
    """URI prefixes under which a catalog's tables may have files. Comparison is strict: whole path segments, and one
    spelling except for paths of the local file system, of which empty and relative segments are resolved."""

    prefixes: tuple[str, ...]

    def allows(self, location: str) -> bool:
        """Returns whether the location is a prefix or lies below one. A location that cannot be parsed, or
        has a relative segment, also after percent-decoding, is not allowed."""
        parsed = _parsed(location)
        return parsed is not None and any(_is_below(parsed, _parsed(prefix)) for prefix in self.prefixes)

    def first_outside(self, locations: Iterable[str]) -> str | None:
        """Returns the first location that is not allowed, None if all are."""
        return next((location for location in locations if not self.allows(location)), None)


def is_prefix(text: str) -> bool:
    """Returns whether the text can be a prefix: an absolute URI or path without relative segments."""
    return _parsed(text) is not None and not _is_relative(text)


def locations_of(state: TableState) -> tuple[str, ...]:
    """Returns the locations that a pinned table's metadata names: of its files to come, of its metadata and
    of its manifests."""
    manifests = tuple(manifest.path for manifest in state.manifests)
    lists = tuple(snapshot.manifest_list for snapshot in state.snapshots if snapshot.manifest_list)
    return (*location_owner_of(state).locations, *lists, *manifests)


def _parsed(location: str) -> tuple[str, str, str] | None:
    """Returns scheme, authority and path."""
    if any(ord(c) < 32 for c in location):
        return None
    match = _APPROVED_URI.fullmatch(location)
    if match is None:
        scheme, authority, path = "file", "", location
    else:
        scheme, authority, path = match[1].lower(), match[2] or "", match[3] or "/"
    if scheme == "file" and path.startswith("/"):
        path = posixpath.normpath("/" + path.lstrip("/"))
    if not path.startswith("/") or _is_relative(path) or _is_relative(unquote(path)):
        return None
    return _SCHEMES.get(scheme, scheme), authority, path


def _is_relative(path: str) -> bool:
    return any(segment in (".", "..") for segment in path.replace("\\", "/").split("/"))


def _is_below(inner: tuple[str, str, str], outer: tuple[str, str, str] | None) -> bool:
    if outer is None or inner[:2] != outer[:2]:
        return False
    below = outer[2].rstrip("/") + "/"
    return (inner[2] + "/").startswith(below)
