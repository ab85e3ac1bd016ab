"""Names of tables and partitions are looked up, never executed: by the catalog's own list, or not at all. Screens, JSON,
pages, Markdown and suggested commands show them, notes and owners as text."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.model.ids import TableId, shell_argument
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.defs.assets.metadata import decision_text
from iceberg_maint.defs.assets.table_card import described, table_card
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import EXIT_DONE, EXIT_USAGE, UnknownTableError
from iceberg_maint.loop.assess import check_partitions
from iceberg_maint.report.formatting import escape_control_chars
from iceberg_maint.report.page import markdown_code, markdown_text
from iceberg_maint_tests.cli.conftest import Lake, lake_of
from iceberg_maint_tests.report.test_table_card import view
from iceberg_maint_tests.security.hostile import HOSTILE, PAYLOADS, names, partitions

pytestmark = pytest.mark.seconds


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that is made when a name is executed."""
    return tmp_path / "executed"


@pytest.fixture
def lake(tmp_path: Path, mark: Path) -> Iterator[Lake]:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 10}, "lake.db.healthy": {"1": 2}})
    before = dict(lake.catalog.content)
    yield lake
    assert not mark.exists()
    assert lake.engine.batches == []
    assert dict(lake.catalog.content) == before


def test_there_are_enough_of_them(mark: Path) -> None:
    assert len(names(str(mark))) >= 300
    assert len(partitions(str(mark))) >= 250


def test_no_table_is_found_by_a_hostile_name(lake: Lake, mark: Path) -> None:
    for name in names(str(mark)):
        with pytest.raises(UnknownTableError) as refused:
            lake.context.catalogs.find(name)
        assert (refused.value.code, refused.value.exit_code) == ("ICM-126", EXIT_USAGE)


@pytest.mark.parametrize(
    ("command", "every"),
    [("plan", 7), ("why", 23), ("run", 23), ("observe", 23), ("reconcile", 23), ("pause", 23)],
)
def test_command_refuses_hostile_names_in_one_line(lake: Lake, mark: Path, command: str, every: int) -> None:
    for name in names(str(mark))[::every]:
        result = lake(command, "--", name)
        assert result.exit_code == EXIT_USAGE, (name, result.output)
        assert result.stderr.startswith("ICM-126 "), name
        assert one_inert_line(result.stderr), name


def test_partition_is_refused_or_one_without_files(lake: Lake, mark: Path) -> None:
    """What decodes is a value of the column, compared with values; all else is refused."""
    state = lake.catalog.pin(TableId.parse("lake.db.sick"))
    known = {f.partition for f in lake.catalog.content[state.table].live_files}
    refused = 0
    for key in partitions(str(mark)):
        try:
            check_partitions(state, frozenset({key}))
        except UnknownTableError:
            refused += 1
        else:
            assert key not in known
            assert lake.catalog.live_files(state, [key]) == ()
    assert refused > 100


@pytest.mark.parametrize("command", ["why", "run"])
def test_command_does_nothing_for_hostile_partitions(lake: Lake, mark: Path, command: str) -> None:
    for key in partitions(str(mark))[::13]:
        result = lake(command, "db.sick", f"--partition={key}")
        assert result.exit_code == EXIT_USAGE or (command, result.exit_code) == ("run", EXIT_DONE), key
        assert result.stderr == "" or one_inert_line(result.stderr), key


def test_table_that_is_listed_by_such_a_name_is_found_by_exactly_it(tmp_path: Path, mark: Path) -> None:
    odd = [n for n in names(str(mark)) if n.startswith("lake.db.") and n.count(".") == 2]
    odd.append("lake.db.[/red]")
    lake = lake_of(tmp_path, {name: {"1": 10} for name in odd})
    assert len(odd) > 30
    for name in odd:
        assert lake.context.catalogs.find(name) == TableId.parse(name)
    listed = lake("tables")
    assert listed.exit_code == EXIT_DONE
    assert all(c.isprintable() or c == "\n" for c in listed.stdout)
    for name in odd[::-4]:
        for command in ("plan", "run", "why", "observe", "history", "proof", "pause", "resume", "release"):
            shown = lake(command, "--", name)
            assert shown.exit_code == EXIT_DONE, (command, name, shown.output)
            assert all(c.isprintable() or c == "\n" for c in shown.output), (command, name)
    assert not mark.exists()


def test_argument_of_a_suggested_command_is_taken_back_exactly_by_a_shell() -> None:
    texts = [text.format(mark="m") for text in (*PAYLOADS, HOSTILE, "", "db.plain") if "\0" not in text]
    line = " ".join(map(shell_argument, texts))
    assert line.isprintable()
    taken = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert taken.decode().split("\0")[:-1] == texts


def test_hostile_names_and_notes_are_text_on_every_screen_and_exact_in_json(tmp_path: Path) -> None:
    table = f"lake.db.{HOSTILE}"
    lake = lake_of(tmp_path, {table: {HOSTILE: 10}})
    lake("observe")
    assert lake("pause", table, "--note", HOSTILE).exit_code == EXIT_DONE
    # Written to the ledger and read from it.
    assert [p["note"] for p in lake.json("tables")["pauses"]] == [HOSTILE]
    screens = [
        ("tables",),
        ("why", table),
        ("why", table, "--all"),
        ("plan", table),
        ("observe",),
        ("report",),
    ]
    paused = [lake(*screen).output for screen in screens]
    assert shell_argument(table) in paused[0]
    assert lake("resume", table).exit_code == EXIT_DONE
    assert shell_argument(table) in lake("why", table).output
    screens += [("run", table), ("history",), ("proof", table), ("proof", table, "--markdown")]
    for text in (*paused, *(lake(*screen).output for screen in screens)):
        assert all(c.isprintable() or c == "\n" for c in text), text
    for screen in (s for s in screens if "--markdown" not in s):
        text = lake(*screen, "--json").stdout
        assert text.replace("\n", "").isprintable(), screen
        assert table in strings(json.loads(text)), screen
    html, markdown = tmp_path / "page.html", tmp_path / "page.md"
    assert lake("report", "--html", str(html), "--markdown", str(markdown)).exit_code == EXIT_DONE
    assert "<b>&lt;" not in html.read_text()
    assert "html_inline" not in structure(markdown.read_text())


@pytest.mark.parametrize("text", [*PAYLOADS, HOSTILE, "`", "`a", "a ``` b"])
def test_text_in_markdown_is_shown_exactly(text: str) -> None:
    shown = escape_control_chars(text).replace("\n", " ")
    [paragraph] = [t for t in MarkdownIt().parse(f"x {markdown_text(text)} x") if t.children]
    assert "".join(t.content for t in paragraph.children or ()) == f"x {shown} x"
    [span] = [t for t in MarkdownIt().parse(f"x {markdown_code(text)} x") if t.children]
    [code] = [t.content for t in span.children or () if t.type == "code_inline"]
    assert code.strip() == shown.strip()


def _card(text: str) -> str:
    sick = view(1)
    evidence = {"who": text, "note": text}
    paused = replace(sick.decisions[0], verdict=Verdict.DEFER, reason=Reason.PAUSED, evidence=evidence)
    return table_card(replace(sick, decisions=[paused, sick.decisions[1]]))


def _owned_card(text: str) -> str:
    return table_card(replace(view(1), histories=[TableHistory(lease_owner=text), TableHistory()]))


def _decision(text: str) -> str:
    return decision_text(replace(view(1).decisions[0], evidence={"note": text}))


def _description(text: str) -> str:
    table, translator = TableId("lake", ("db",), text), IcebergTranslator()
    return f"{translator.get_description(table)}\n\n{translator.get_housekeeping_description(table)}"


@pytest.mark.parametrize("make", [_card, _owned_card, _decision, _description])
def test_markdown_for_dagster_has_the_same_structure_with_hostile_text(make: Callable[[str], str]) -> None:
    assert make(HOSTILE) != make("plain")
    assert structure(make(HOSTILE)) == structure(make("plain"))


def test_card_that_cannot_be_made_shows_the_error_as_text(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 1}})

    def fail() -> str:
        raise ValueError(HOSTILE)

    table = TableId("lake", ("db",), HOSTILE)
    shown = described(lake.context, logging.getLogger("card"), table, fail).value
    assert set(structure(shown)) <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}


def structure(markdown: str) -> list[str]:
    """The kinds of blocks and marks in a Markdown text."""
    kinds = [
        kind for t in MarkdownIt().parse(markdown) for kind in (t.type, *(c.type for c in t.children or ()))
    ]
    return [k for n, k in enumerate(kinds) if not n or (k, kinds[n - 1]) != ("text", "text")]


def strings(value: Any) -> set[str]:
    """All texts in a JSON document, with its keys."""
    if isinstance(value, dict):
        return set(value).union(*map(strings, value.values()))
    if isinstance(value, list):
        return set().union(*map(strings, value))
    return {value} if isinstance(value, str) else set()


def one_inert_line(text: str) -> bool:
    """Whether a terminal is written one line to and not steered."""
    return text.endswith("\n") and text[:-1].isprintable()
