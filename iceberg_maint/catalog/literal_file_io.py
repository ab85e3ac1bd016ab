"""PyIceberg's FileIO for file systems, with each location as the name that it is.

PyIceberg parses a location as a URL, and so cuts it at `?` and `#`. Hadoop's file systems take both as part of a name, as
they do `%`. On S3, Iceberg's own FileIO cuts locations as PyIceberg does.
"""

from __future__ import annotations

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_maint.core.model.location import cut_path


class LiteralFileIO(PyArrowFileIO):
    """The FileIO that `listing` registers for the schemes of Hadoop's file systems."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Returns scheme, authority and the whole path."""
        cut = cut_path(location)
        scheme, netloc, path = PyArrowFileIO.parse_location(cut, properties)
        return scheme, netloc, path + location[len(cut) :]
