"""The documentation names everything a user meets: keys, reasons, outcomes, codes, metrics, commands."""

from __future__ import annotations

import importlib.util
import re
import shlex
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

from iceberg_maint.cli import COMMANDS, iceberg_maint
from iceberg_maint.config.document import document_keys
from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.health.metrics import metric_docs
from iceberg_maint.core.model.reasons import SENTENCES, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus, Rejection
from iceberg_maint.core.outcomes.verification import StoredProof, VerificationStatus
from iceberg_maint.core.policy.data import policy_keys
from iceberg_maint.errors import CODES, EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_UNKNOWN, EXIT_USAGE

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
REFERENCE = DOCS / "reference"


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def rows(name: str) -> dict[str, str]:
    """Table rows of a page by the code in their first cell."""
    return dict(re.findall(r"^\| `([^`]+)`[^|]* \| (.*) \|$", page(name), re.MULTILINE))


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return script("reference")


def script(name: str) -> ModuleType:
    """A script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_equal_what_the_code_says(reference: ModuleType) -> None:
    pages = reference.pages()
    assert {
        f"reference/{n}.md" for n in ("cli", "frames", "metrics", "telemetry", "configuration", "reasons")
    } < set(pages)
    assert [n for n, text in pages.items() if (DOCS / n).read_text("utf-8") != text] == [], (
        "run 'make reference'"
    )


def test_picture_of_the_rooms_equals_what_the_imports_say() -> None:
    rooms = script("rooms")
    picture = (DOCS / "images" / "rooms.svg").read_text("utf-8")
    assert rooms.draw(rooms.imports()) == picture, "run 'make reference'"


def test_every_command_is_on_the_generated_page(reference: ModuleType) -> None:
    headings = set(re.findall(r"^##+ `([a-z -]+)`$", page("cli"), re.MULTILINE))
    assert headings - {"iceberg-maint"} == {
        name for name, _ in reference.commands(iceberg_maint, list(COMMANDS))
    }


def test_table_that_is_not_on_its_page_is_an_error(reference: ModuleType) -> None:
    with pytest.raises(LookupError, match="no table"):
        reference.with_table("# Page\n", "| Key |", "")


def test_metric_without_a_unit_is_an_error(reference: ModuleType) -> None:
    with pytest.raises(LookupError, match="UNITS"):
        reference.unit("loveliness")


def environment_variables() -> set[str]:
    """Names of our own variables, wherever the program reads them."""
    sources = (PROJECT / "iceberg_maint").rglob("*.py")
    return {
        name for f in sources for name in re.findall(r'"(ICEBERG_MAINT_\w+)"', f.read_text(encoding="utf-8"))
    }


def test_configuration_documents_every_key_and_variable_and_no_other() -> None:
    variables = environment_variables()
    assert {"ICEBERG_MAINT_CONFIG", "ICEBERG_MAINT_HOME"} < variables
    known = {k.path for k in policy_keys()} | set(document_keys()) | variables
    assert set(rows("configuration")) == known


def test_every_reason_is_documented_by_its_sentence() -> None:
    documented = rows("reasons")
    assert {r.value: documented.get(r.value) for r in Reason} == {r.value: SENTENCES[r] for r in Reason}


@pytest.mark.parametrize(
    "words", [Verdict, OutcomeStatus, CommitStatus, Rejection, VerificationStatus, StoredProof]
)
def test_every_status_word_is_documented(words: type[StrEnum]) -> None:
    assert [w.value for w in words if f"`{w.value}`" not in page("reasons")] == []


def test_every_error_code_is_documented() -> None:
    documented = rows("errors")
    assert set(documented) == set(CODES)
    assert [code for code, meaning in CODES.items() if not documented[code].startswith(meaning)] == []


def test_every_error_code_is_given_by_somebody() -> None:
    sources = "".join(f.read_text(encoding="utf-8") for f in (PROJECT / "iceberg_maint").rglob("*.py"))
    given = re.findall(r"""["'](ICM-[0-9]{3})["']""", sources)
    once_in_the_list = 1
    assert [code for code in CODES if given.count(code) == once_in_the_list] == []


def test_every_health_metric_has_a_unit_and_its_meaning() -> None:
    documented = rows("metrics")
    assert set(documented) == set(metric_docs())
    assert [m for m, doc in metric_docs().items() if not documented[m].endswith(f"| {doc}")] == []


def test_every_exit_code_is_documented() -> None:
    found = re.findall(r"^\| (\d) \|", page("contract"), re.MULTILINE)
    assert list(map(int, found)) == [EXIT_USAGE, EXIT_UNKNOWN, EXIT_FAILED, EXIT_REFUSED, EXIT_DONE]


@pytest.mark.parametrize(("name", "most"), [("README.md", 750), ("CHANGELOG.md", 500)])
def test_page_at_the_top_is_short(name: str, most: int) -> None:
    assert len((PROJECT / name).read_text("utf-8").split()) <= most


def command_lines(text: str) -> list[str]:
    """The calls of `iceberg-maint` in the code of a page, without comments."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).splitlines()
    calls = (re.match(r"(?:\$ )?(?:\.venv/bin/)?iceberg-maint (.*)", line) for line in lines)
    return [call.group(1).partition("  #")[0] for call in calls if call]


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", *sorted((DOCS / "start").glob("*.md")), *sorted((DOCS / "how-to").glob("*.md"))],
    ids=lambda page: page.name,
)  # fmt: skip
def test_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for line in command_lines(page.read_text("utf-8")):
        words = shlex.split(line, comments=True)
        command: click.Command | None = iceberg_maint
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, line
        known = {o for p in command.params for o in p.opts} | {"--config", "--json", "--version"}
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known, line


def test_two_commands_of_the_readme_are_targets_and_one_is_what_ci_runs() -> None:
    first = re.findall(
        r"^```\n(.*?)^```", (PROJECT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )[0]
    targets = [line.split()[1] for line in first.splitlines()]
    assert targets == ["run", "test"]
    assert {f".PHONY: {target}" for target in targets} <= set(
        (PROJECT / "Makefile").read_text("utf-8").splitlines()
    )
    assert "exec make test" in (PROJECT / ".ci" / "run").read_text("utf-8")


PAGES = sorted(
    p.relative_to(PROJECT)
    for p in [*PROJECT.glob("*.md"), *DOCS.rglob("*.md"), *(PROJECT / ".github").rglob("*.md")]
)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings that the site and its host spell alike: the site makes one hyphen of two."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    spelled = (re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-") for h in headings)
    return {anchor for anchor in spelled if "--" not in anchor}


def broken_links(source: Path) -> list[str]:
    """Relative links of a page whose file or whose heading is not there."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code((PROJECT / source).read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (PROJECT / source).parent / path if path else PROJECT / source
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("source", PAGES, ids=str)
def test_every_relative_link_of_a_page_leads_somewhere(source: Path) -> None:
    assert broken_links(source) == []


def test_link_to_a_missing_page_or_heading_is_broken(tmp_path: Path) -> None:
    text = (
        "# A b\n[](#a-b) [](#c) [](page.md#a-b) [](page.md#d) [](gone.md) `[](code.md)` [](https://x.org)\n"
        "## `python -m x`\n[](#python--m-x)\n"
    )
    (tmp_path / "page.md").write_text(text, "utf-8")
    assert broken_links(tmp_path / "page.md") == ["#c", "page.md#d", "gone.md", "#python--m-x"]


def nav_pages(nav: object) -> list[str]:
    """Every page that the navigation of the site names, in its order."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []
    return [page for item in inner for page in nav_pages(item)]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    config = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text("utf-8"))
    named = nav_pages(config["nav"])
    assert len(named) == len(set(named))
    decisions = set((DOCS / "design" / "decisions").glob("*-*.md"))  # listed by their index
    assert set(named) == {str(p.relative_to(DOCS)) for p in set(DOCS.rglob("*.md")) - decisions}


def test_every_reason_is_on_the_page_about_incidents_once() -> None:
    text = (DOCS / "how-to" / "incidents.md").read_text("utf-8")
    rows_of_codes = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    in_prose = re.findall(
        r"`([a-z_]+)`", text.split("## Codes that say why something runs")[1].split("\n## ")[0]
    )
    assert sorted(rows_of_codes + in_prose) == sorted(r.value for r in Reason)


def test_every_rule_of_the_gate_is_on_its_page() -> None:
    text = (DOCS / "design" / "decisions" / "gate-checks.md").read_text("utf-8")
    assert [rule.value for rule in Rule if f"`{rule.value}`" not in text] == []


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (DOCS / "design" / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", text))
    assert names
    places = (PROJECT / "iceberg_maint", PROJECT)
    assert {name for name in names if not any((at / name).exists() for at in places)} == set()


def test_every_file_that_a_recipe_names_exists() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text[text.index("## Recipes") : text.index("## Prose")]
    names = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|md))`", recipes))
    files = {f"/{path.relative_to(PROJECT).as_posix()}" for path in PROJECT.glob("[!.]*/**/*.*")}
    assert len(names) > 20
    assert {name for name in names if not any(file.endswith(f"/{name}") for file in files)} == set()
