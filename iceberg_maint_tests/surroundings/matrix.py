"""What the suite expects of each cell, and the table that it prints."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint_tests.surroundings.cell import NAMES, OK

STORES = ("local", "moto", "versitygw")
Words = Mapping[tuple[str, str], Mapping[str, str]]


def is_offered(catalog: str, store: str) -> bool:
    """Whether the catalog takes tables on this store."""
    # Nessie's server writes to object stores only. Glue's is moto.
    return {"nessie": store != "local", "glue": store == "moto"}.get(catalog, True)


NESSIE = {
    "tables": "format v2 in place of v3",
    "verify": "UNPROVABLE",
    "expiry": "gc_disabled",
    "fleet": "gc_disabled",
    "orphans": "ICM-110",
    "sweep": "gc_disabled",
}
"""Nessie sets `gc.enabled=false`, because other branches may need the files, and its metadata has only the current
snapshot. Nessie 0.99.0 makes tables of format v2 where v3 is asked for."""


HIVE_NAMES = "; ".join(
    [
        *(f"{kind}: the catalog raises RuntimeException" for kind in ("spaces", "unicode", "quotes")),
        "dots: the catalog raises ValidationException",
    ]
)
"""Hive Metastore takes ASCII letters, digits and underscores only."""


def expected(catalog: str, store: str, step: str) -> str:
    """The word that a step must have."""
    if catalog == "nessie" and step in NESSIE:
        return NESSIE[step]
    if (catalog, step) == ("hive", "names"):
        return HIVE_NAMES
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
