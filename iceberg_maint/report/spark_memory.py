"""The memory of Spark that a plan needs, on the screen and in the document of `plan`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from iceberg_maint.core.planning.spark_memory import NeededMemory, NeededSetting, setting_text
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document


def spark_memory_document(needed: NeededMemory | None, settings: Sequence[NeededSetting]) -> Document | None:
    """The key `spark_memory` of `plan --json`: None if the plan applies no equality deletes."""
    if needed is None or not settings:
        return None
    return {
        "one_pass_bytes": needed.one_pass_bytes,
        "settings": [
            {
                "name": s.name,
                "needed_bytes": s.needed_bytes,
                "declared_bytes": s.declared_bytes,
                "short": s.is_short,
            }
            for s in settings
        ],
    }


def draw_spark_memory(
    console: Console, needed: NeededMemory | None, settings: Sequence[NeededSetting]
) -> None:
    """Draws a line with what the equality deletes of a plan need; nothing without any."""
    if needed is None or not settings:
        return
    texts = [
        f"{s.name} {'of more than any machine has' if s.needed_bytes is None else setting_text(s.needed_bytes)} "
        f"({setting_text(s.declared_bytes)} declared)"
        for s in settings
    ]
    one_pass = needed.one_pass_bytes
    once = (
        f"; {setting_text(one_pass)} to read the data once"
        if one_pass is not None and needed.executor_bytes is not None and one_pass > needed.executor_bytes
        else ""
    )
    console.print()
    write(console, f"equality deletes need at least {', '.join(texts)}{once}")
