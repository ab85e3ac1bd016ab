"""The linters of prose and of commit messages, and the files that a hosting service reads."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

pytestmark = pytest.mark.seconds

PROJECT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((PROJECT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", PROJECT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    return script("prose")


@pytest.fixture(scope="module")
def commit_message() -> ModuleType:
    return script("commit_message")


LIST = """
exempt = ["docs/old/*.md"]
[[habit]]
pattern = '\\banew\\b'
better = "write 'again'"
[[habit]]
pattern = '\\btells? of\\b'
better = "write 'reports'"
code = true
"""


def test_page_with_a_habit_is_reported_with_its_line_and_the_better_word(prose: ModuleType) -> None:
    findings = prose.load(LIST).findings("One.\nPlanned Anew, and it tells\nof it.", code=False)
    assert findings == ["2: 'Anew'. Fix: write 'again'", "2: 'tells of'. Fix: write 'reports'"]


def test_module_is_held_only_to_habits_that_read_code(prose: ModuleType) -> None:
    assert prose.load(LIST).findings("anew, tells of", code=True) == ["1: 'tells of'. Fix: write 'reports'"]


def test_code_spans_and_blocks_of_a_page_are_not_read(prose: ModuleType) -> None:
    page = "a `anew`\n```\nanew\n```\nanew\n"
    assert prose.load(LIST).findings(prose.prose_of_page(page), code=False) == [
        "5: 'anew'. Fix: write 'again'",
    ]


def test_comments_docstrings_and_messages_of_a_module_are_read_and_names_are_not(prose: ModuleType) -> None:
    source = '"""Anew.\n\nanew"""\nanew = f"x {1} anew"  # anew\nkeys = {"anew": 1}\n'
    rules = prose.load(LIST.replace("again'\"", "again'\"\ncode = true"))
    lines = [f.partition(":")[0] for f in rules.findings(prose.prose_of_module(source), code=True)]
    assert lines == ["1", "3", "4", "4"]


def test_every_exemption_is_needed(prose: ModuleType) -> None:
    rules = prose.load(prose.LIST.read_text("utf-8"))
    for pattern in rules.exempt:
        files = [p for p in PROJECT.glob(pattern) if p.suffix == ".md"]
        found = [rules.findings(prose.prose_of_page(p.read_text("utf-8")), code=False) for p in files]
        assert any(found), f"{pattern} has no habit any more: remove it from the exemptions"


@pytest.mark.parametrize(
    "message",
    ["Refuse a commit without its token", "Bring Java along\n\nThe reason.\n", "Add x\n# a comment of git"],
)
def test_message_with_an_imperative_subject_is_accepted(commit_message: ModuleType, message: str) -> None:
    assert commit_message.problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Add " + "x" * 69, "has 73 characters"),
        ("Add a test.", "full stop"),
        ("Added a test", "starts with 'Added'"),
        ("The gate refuses", "starts with 'The'"),
        ("fix the gate", "starts with 'fix'"),
        ("Fix the gate\nbecause", "second line"),
        ("", "starts with ''"),
    ],
)
def test_message_against_the_rules_is_refused(commit_message: ModuleType, message: str, problem: str) -> None:
    [found] = commit_message.problems(message)
    assert problem in found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.stem)
def test_workflow_may_only_read_and_names_no_secret(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text("utf-8"))
    assert document["permissions"] == {"contents": "read"}
    assert "secrets." not in workflow.read_text("utf-8")


def test_files_that_workflows_and_hooks_name_exist() -> None:
    texts = [p.read_text("utf-8") for p in [*WORKFLOWS, PROJECT / ".pre-commit-config.yaml"]]
    named = {path for text in texts for path in re.findall(r"(?:\.ci|requirements)/[\w.]+", text)}
    assert {".ci/prose.py", ".ci/commit_message.py", "requirements/runtime.txt"} <= named
    assert [path for path in named if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_issue_form_has_what_the_host_demands(form: Path) -> None:
    document = yaml.safe_load(form.read_text("utf-8"))
    if form.stem == "config":
        assert set(document) == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= set(document)
    fields = [field for field in document["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
