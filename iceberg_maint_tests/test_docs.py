"""The documentation names everything a user meets: keys, reasons, outcomes, codes, metrics, commands."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path

import click
import pytest

from iceberg_maint.cli.root import COMMANDS, iceberg_maint
from iceberg_maint.config.document import document_keys
from iceberg_maint.config.policy_keys import rule
from iceberg_maint.core.health import metric_docs
from iceberg_maint.core.outcome import CommitStatus, OutcomeStatus, Rejection
from iceberg_maint.core.policy import PolicyKey, policy_keys
from iceberg_maint.core.reasons import SENTENCES, Reason, Verdict
from iceberg_maint.core.verification import StoredProof, VerificationStatus
from iceberg_maint.errors import CODES, EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_UNKNOWN, EXIT_USAGE

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
REFERENCE = DOCS / "reference"


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def rows(name: str) -> dict[str, str]:
    """Table rows of a page by the code in their first cell."""
    found = re.findall(r"^\| `([^`]+)`[^|]* \| (.*) \|$", page(name), re.MULTILINE)
    return dict(found)


def policy_row(key: PolicyKey) -> str:
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    return f"{rule(key.path)} | `{json.dumps(default)}` | {key.doc}"


def test_every_policy_key_is_documented_as_it_is() -> None:
    documented = rows("configuration")
    assert {k.path: documented.get(k.path) for k in policy_keys()} == {
        k.path: policy_row(k) for k in policy_keys()
    }


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


def test_every_health_metric_is_documented_as_it_is() -> None:
    documented = rows("contract")
    assert {m: documented.get(m) for m in metric_docs()} == metric_docs()


def test_every_exit_code_is_documented() -> None:
    found = re.findall(r"^\| (\d) \|", page("contract"), re.MULTILINE)
    assert list(map(int, found)) == [EXIT_USAGE, EXIT_UNKNOWN, EXIT_FAILED, EXIT_REFUSED, EXIT_DONE]


def command_lines() -> dict[str, str]:
    """First cells of the command table by command; those of a group's commands in one."""
    table = page("contract").split("| Command | Does |\n")[1].split("\n\n")[0]
    lines: dict[str, str] = {}
    for cell in re.findall(r"^\| `([^`]*)` \|", table, re.MULTILINE):
        name = cell.split()[0]
        lines[name] = f"{lines.get(name, '')} {cell}".strip()
    return lines


def params_of(command: click.Command) -> list[click.Parameter]:
    """A command's own, or those of a group's commands."""
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    return [p for one in commands for p in one.params]


def test_every_command_is_documented() -> None:
    assert set(command_lines()) == set(COMMANDS)


def test_every_command_of_a_group_is_documented() -> None:
    for name in COMMANDS:
        command = iceberg_maint.get_command(click.Context(iceberg_maint), name)
        if isinstance(command, click.Group):
            assert set(re.findall(rf"{name} (\w+)", command_lines()[name])) == set(command.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_documented(name: str) -> None:
    command = iceberg_maint.get_command(click.Context(iceberg_maint), name)
    assert command is not None
    options = {o for p in params_of(command) if isinstance(p, click.Option) for o in p.opts}
    common = {"--config", "--json", "--set"}
    told = set(re.findall(r"--[a-z-]+", command_lines()[name]))
    assert options - common == told
