"""The user's own jars, which a session loads in addition to the locked ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.config.local_file import local_file
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.config.value_names import yaml_repr
from iceberg_maint.errors import ConfigurationError

_KEYS = {"path", "sha256"}


@dataclass(frozen=True, slots=True)
class JarConfig:
    """A local file by its absolute path. `sha256`, in lower case, is the required checksum of its bytes."""

    path: Path
    sha256: str | None


def jar_configs(entries: Iterable[object], resolver: Resolver) -> tuple[JarConfig, ...]:
    """Returns the jars of `spark.jars`, each a path or a mapping of `path` and `sha256`. Reads no file.

    Raises ConfigurationError ICM-100 for another key, for a path that is not absolute or that Spark would
    misread, and for a value that is not a checksum.
    """
    return tuple(_jar(entry, f"spark.jars.{i}", resolver) for i, entry in enumerate(entries))


def _jar(entry: object, where: str, resolver: Resolver) -> JarConfig:
    sha256 = None
    if isinstance(entry, Mapping) and "env" not in entry:
        if not {"path"} <= set(entry) <= _KEYS:
            keys = ", ".join(sorted(map(str, entry)))
            raise ConfigurationError(
                "ICM-100",
                f"{where} has the keys {keys}. It must have path and may have sha256.",
                "write path, and sha256 if the file is to be checked.",
            )
        if "sha256" in entry:
            sha256 = _checksum(entry["sha256"], f"{where}.sha256")
        entry, path_key = entry["path"], f"{where}.path"
    else:
        path_key = where
    return JarConfig(local_file(resolver.text(entry, path_key), path_key, "Spark"), sha256)


def _checksum(value: object, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is {yaml_repr(value)}. It must be a text of 64 hexadecimal digits.",
            "write the SHA-256 of the file.",
        )
    return value.lower()
