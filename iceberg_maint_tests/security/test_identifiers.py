"""Names of tables and partitions are looked up, never executed: by the catalog's own list, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import EXIT_DONE, EXIT_USAGE, UnknownTableError
from iceberg_maint.runner.assess import check_partitions
from iceberg_maint_tests.cli.conftest import Lake, lake_of
from iceberg_maint_tests.security.hostile import names, partitions


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
            lake.runtime.find(name)
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
        assert lake.runtime.find(name) == TableId.parse(name)
    listed = lake("tables")
    assert listed.exit_code == EXIT_DONE
    assert all(c.isprintable() or c == "\n" for c in listed.stdout)
    for name in odd[::-4]:
        for command in ("plan", "run", "why", "observe", "history", "proof", "pause", "resume", "release"):
            shown = lake(command, "--", name)
            assert shown.exit_code == EXIT_DONE, (command, name, shown.output)
            assert all(c.isprintable() or c == "\n" for c in shown.output), (command, name)
    assert not mark.exists()


def one_inert_line(text: str) -> bool:
    """Whether a terminal is written one line to and not steered."""
    return text.endswith("\n") and text[:-1].isprintable()
