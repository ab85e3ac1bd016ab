"""The fingerprint of files by their bytes: algorithm `sha256-files-1`.

A columnar task compares the rows of its output with the rows that it read. The files are proved from then on by their
bytes: another process that commits them compares the bytes. No row is read again, so columns that Spark cannot read
are proved too.
"""

from __future__ import annotations

from collections.abc import Iterable

from iceberg_maint.core.outcomes.verification import FILES_ALGORITHM, Fingerprint


def fingerprint(files: Iterable[tuple[int, str]]) -> Fingerprint:
    """The fingerprint of files, each given with its record count and its digest."""
    rows, sums = 0, [0, 0, 0, 0]
    for records, digest in files:
        rows += records
        for i in range(4):
            sums[i] = (sums[i] + int(digest[16 * i : 16 * i + 16], 16)) & ((1 << 64) - 1)
    return Fingerprint(rows, ((sums[0], sums[1]), (sums[2], sums[3])), FILES_ALGORITHM)
