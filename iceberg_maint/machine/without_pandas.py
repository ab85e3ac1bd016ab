"""A process in which pandas cannot be imported."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this process runs without pandas", name=fullname)


def hide_pandas() -> None:
    """Hides pandas, which no command and no columnar task uses. Arrow's first conversion of a Python value would import it, for
    0.25 s of CPU and 50 MB, as would PyIceberg's file system."""
    sys.meta_path.insert(0, _WithoutPandas())
