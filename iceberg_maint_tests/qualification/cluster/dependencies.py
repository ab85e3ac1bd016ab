"""The archive of the packages that the columnar engine needs on executors, for `spark.archives`."""

from __future__ import annotations

import site
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

_IMPORTS = """
import sys
import pyroaring
import iceberg_maint.columnar.rewrite, iceberg_maint.columnar.storage, iceberg_maint.engines.spark.rewrite.columnar.worker
print("\\n".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""
_NEVER = ("iceberg_maint", "iceberg_maint_tests", "pyspark", "py4j", "_distutils_hack", "pandas", "psutil")
"""The program ships its own package. PySpark is on the executors. The others are loaded, but not needed."""
_LEFT_OUT = ("/tests/", "/include/", "/__pycache__/", "/src/", "flight")


def write_archive(path: Path) -> list[str]:
    """Writes the packages that these imports load. Returns their names."""
    folder = Path(sysconfig.get_path("purelib"))
    assert str(folder) in site.getsitepackages()
    listed = subprocess.run([sys.executable, "-c", _IMPORTS], check=True, capture_output=True, text=True)
    names = [n for n in listed.stdout.split() if n not in _NEVER and not n.startswith("__editable__")]
    packed = []
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name in names:
            parts = [
                p for p in (folder / name, *folder.glob(f"{name}.*"), folder / f"{name}.libs") if p.exists()
            ]
            for part in parts:
                archive.add(part, part.name, filter=_wanted)
            if parts:
                packed.append(name)
    return packed


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(part in f"/{entry.name}/" for part in _LEFT_OUT) else entry
