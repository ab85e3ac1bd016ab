"""Locations that a catalog's owner approved: nothing outside them is read, written or deleted.

A table's metadata names files by their full location. A writer of a table can name a file of
another team there, and a maintainer with wide credentials would read or delete it (Polaris CVE-2026-42809,
CVE-2026-42810 and CVE-2026-42812: a confused deputy).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from iceberg_maint.core.model.location import claim_of
from iceberg_maint.core.model.table_state import TableState

LOCATION_PROVIDER = "write.location-provider.impl"
"""Table property that names a class that chooses the location of new files (Iceberg's `LocationProviders`)."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
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
    return (*claim_of(state).locations, *lists, *manifests)


def _parsed(location: str) -> tuple[str, str, str] | None:
    """Returns scheme, authority and path."""
    if any(ord(c) < 32 for c in location):
        return None
    match = _URI.fullmatch(location)
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
