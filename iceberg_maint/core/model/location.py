"""Locations of files, compared: schemes and authorities that mean the same, and paths.

Iceberg stores locations as text and object stores take them literally, so that two spellings of
one file exist. Where they are compared to decide what nothing reaches, a spelling too many must
read as the same file, never as another one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from iceberg_maint.core.model.table_state import TableState

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(.*)", re.DOTALL)
_WRITE_PATHS = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.metadata.path",
)
"""Table properties that put files elsewhere (Iceberg's `LocationProviders`, `TableProperties`)."""


@dataclass(frozen=True, slots=True)
class Equivalences:
    """Schemes and authorities (bucket, host) that name the same store: spelling → the one it is
    taken for."""

    schemes: Mapping[str, str] = field(default_factory=lambda: {"s3a": "s3", "s3n": "s3"})
    authorities: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Location:
    """`store` is `scheme://authority` as the equivalences have it; `path` as it was written."""

    store: str
    path: str

    @property
    def key(self) -> bytes:
        """What stands for the path in comparisons: equal for all spellings of one path."""
        return path_key(self.path)

    @property
    def is_local(self) -> bool:
        """Whether it is on the local file system."""
        return self.store.startswith("file:")


def equivalences(schemes: Iterable[str], authorities: Iterable[str]) -> Equivalences:
    """Of texts `spelling=what it is taken for`. Raises ValueError for a text that is none, or a
    spelling that is itself what another one is taken for."""
    return Equivalences(_pairs(schemes, fold=True), _pairs(authorities, fold=False))


def _pairs(texts: Iterable[str], *, fold: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        spelling, equals, taken_for = (text.lower() if fold else text).partition("=")
        if not (spelling and equals and taken_for) or "=" in taken_for:
            raise ValueError(f"'{text}' is not spelling=other")
        found[spelling] = taken_for
    if chained := found.keys() & set(found.values()):
        raise ValueError(f"'{min(chained)}' is taken for another one, and another one for it")
    return found


def parse_location(text: str, same: Equivalences) -> Location:
    """Splits a location. A bare absolute path is a `file` one; `?` and `#` are part of the path.
    Raises ValueError for what is neither."""
    match = _URI.fullmatch(text)
    if match is None and not text.startswith("/"):
        raise ValueError(f"'{text}' is neither a URI nor an absolute path")
    scheme, authority, path = match.groups() if match is not None else ("file", "", text)
    if not path.startswith("/") and path:
        raise ValueError(f"'{text}' has no absolute path")
    scheme, authority = scheme.lower(), authority or ""
    scheme = same.schemes.get(scheme, scheme)
    return Location(f"{scheme}://{same.authorities.get(authority, authority)}", path)


def path_key(path: str) -> bytes:
    """The path percent-decoded, in one Unicode form and case, without empty and dot segments.

    Two files whose paths differ in nothing else count as one: the one that nothing reaches stays.
    """
    # Most paths are plain: this runs once per file of a table.
    if not path.isascii() or "%" in path:
        decoded = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        path = unicodedata.normalize("NFC", unicodedata.normalize("NFC", decoded).casefold())
    else:
        path = path.lower()
    if "//" in path or "/." in path or path.endswith("/"):
        path = "/" + "/".join(_resolved(path.split("/")))
    return path.encode("utf-8", "surrogateescape")


def _resolved(segments: Iterable[str]) -> list[str]:
    found: list[str] = []
    for segment in segments:
        if segment == "..":
            del found[-1:]
        elif segment not in ("", "."):
            found.append(segment)
    return found


def is_within(inner: Location, outer: Location) -> bool:
    """Whether a location is the other one or below it."""
    below = outer.key.rstrip(b"/") + b"/"
    return inner.store.casefold() == outer.store.casefold() and (inner.key.rstrip(b"/") + b"/").startswith(
        below
    )


def is_root(location: Location) -> bool:
    """Whether it is a whole bucket or file system."""
    return location.key.strip(b"/") == b""


@dataclass(frozen=True, slots=True)
class Claim:
    """The locations that a table's files are written to: its own first."""

    table: str
    table_uuid: str
    locations: tuple[str, ...]


def claim_of(state: TableState) -> Claim:
    """What a pinned table claims, see `claim`."""
    return claim(str(state.table), state.uuid, state.location, state.properties, state.metadata_location)


def claim(
    table: str,
    table_uuid: str,
    location: str,
    properties: Mapping[str, str],
    metadata_location: str,
    folders: Iterable[str] = (),
) -> Claim:
    """What a table claims: its location, the paths its properties send files to, the folder of its
    metadata file, and other folders that it has files in."""
    folder = metadata_location.rpartition("/")[0]
    named = [properties[p] for p in _WRITE_PATHS if properties.get(p)]
    return Claim(table, table_uuid, tuple(dict.fromkeys((location, *named, folder, *folders))))


def outside(claim: Claim, prefixes: Iterable[str], same: Equivalences) -> tuple[str, ...]:
    """The locations of a claim below none of the prefixes. Raises ValueError, see
    `parse_location`."""
    within = [parse_location(p, same) for p in prefixes]
    return tuple(
        text for text in claim.locations if not any(is_within(parse_location(text, same), p) for p in within)
    )


def overlaps(
    prefixes: Iterable[str], others: Iterable[Claim], same: Equivalences
) -> Iterator[tuple[str, Claim, str]]:
    """(prefix, claim, its location) wherever one of another table's locations is, holds or lies
    below one of the prefixes. Raises ValueError, see `parse_location`."""
    own = [(text, parse_location(text, same)) for text in prefixes]
    for claim in others:
        for theirs in claim.locations:
            location = parse_location(theirs, same)
            for text, prefix in own:
                if is_within(location, prefix) or is_within(prefix, location):
                    yield text, claim, theirs
