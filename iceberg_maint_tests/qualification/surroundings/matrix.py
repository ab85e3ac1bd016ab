"""What the suite expects of each cell, and the table that it prints."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint_tests.qualification.surroundings.cell import NAMES, OK
from iceberg_maint_tests.qualification.surroundings.tables import NAMED

STORES = ("local", "moto", "versitygw", "gcs")
ON_REQUEST = ("azure",)
"""Stores that need a package that is in no lock. They run only if they are named."""
ONE_STORE = {
    "sqlite": "local",
    "postgresql": "versitygw",
    "rest": "gcs",
    "nessie": "versitygw",
    "hive": "moto",
    "glue": "moto",
}
"""The store of each catalog in a run that tries every catalog and every store, but not all pairs."""
NATIVE = {"gcs": "gs", "azure": "abfss"}
"""Stores that Arrow does not read for `columnar`, and their schemes."""
Words = Mapping[tuple[str, str], Mapping[str, str]]


def is_offered(catalog: str, store: str) -> bool:
    """Whether the catalog takes tables on this store."""
    if store in NATIVE:
        return catalog in ("sqlite", "postgresql", "rest")
    # Nessie's server writes to object stores only. Glue's is moto.
    return {"nessie": store != "local", "glue": store == "moto"}.get(catalog, True)


NESSIE = {
    "tables": "format v2 in place of v3",
    "verify": "no parent snapshot",
    # Observed, planned and rewritten; the step ends with `attest`.
    "names": "spaces: no parent snapshot; unicode: no parent snapshot; quotes: no parent snapshot",
    "expiry": "gc_disabled",
    "fleet": "gc_disabled",
    "orphans": "ICM-110",
    "sweep": "gc_disabled",
}
"""Nessie sets `gc.enabled=false`, because other branches may need the files, and its metadata has only the current
snapshot. Nessie 0.99.0 makes tables of format v2 where v3 is asked for."""


_ERRORS = {
    "hive": ("RuntimeException", "RuntimeException", "RuntimeException", "ValidationException"),
    "glue": ("ValidationException", "ValidationException", "ValidationException", "IllegalArgumentException"),
}
REFUSED_NAMES = {
    catalog: "; ".join(
        f"{kind}: the catalog raises {error}" for kind, error in zip(NAMED, errors, strict=True)
    )
    for catalog, errors in _ERRORS.items()
}
"""The errors of catalogs that take ASCII letters, digits and underscores only, by the kind of name."""


def expected(catalog: str, store: str, step: str) -> str:
    """The word that a step must have."""
    if catalog == "nessie" and step in NESSIE:
        return NESSIE[step]
    if step == "names":
        return REFUSED_NAMES.get(catalog, OK)
    if store in NATIVE and step == "columnar":
        return f"native: files are on {NATIVE[store]}"
    return OK


def page(words: Words) -> str:
    """The table of catalog, store and operation, in Markdown. A word that is longer than a cell becomes a note."""
    notes: dict[str, int] = {}
    rows = []
    for (catalog, store), steps in words.items():
        cells = []
        for name in NAMES:
            word = steps.get(name, steps.get("start", "not run"))
            cells.append(word if word == OK else f"[{notes.setdefault(word, len(notes) + 1)}]")
        rows.append(f"| {catalog} | {store} | {' | '.join(cells)} |")
    head = f"| Catalog | Store | {' | '.join(NAMES)} |\n|{'---|' * (len(NAMES) + 2)}"
    below = [f"[{number}] {word}" for word, number in notes.items()]
    return "\n".join([head, *rows, "", *below])
