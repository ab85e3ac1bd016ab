"""What the suite of surroundings expects and prints, and that every part of it is locked."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.engines.spark.session.jars import parse_jars
from iceberg_maint_tests.qualification.surroundings import tables
from iceberg_maint_tests.qualification.surroundings.catalogs import CATALOGS, Surrounding
from iceberg_maint_tests.qualification.surroundings.cell import NAMES, OK
from iceberg_maint_tests.qualification.surroundings.faults import COMMANDS, EXPECTED, SAME, wrong_faults
from iceberg_maint_tests.qualification.surroundings.matrix import (
    ONE_STORE,
    STORES,
    expected,
    is_offered,
    page,
)
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.rest_cases import CASES
from iceberg_maint_tests.qualification.surroundings.rest_runs import BUDGET, TWO_NAMES, wrong_answers
from iceberg_maint_tests.qualification.surroundings.stores import Store

pytestmark = pytest.mark.slow


def test_matrix_has_every_catalog_on_s3_and_all_but_two_on_local_disks() -> None:
    cells = [(c, s) for c in CATALOGS for s in STORES if is_offered(c, s)]
    assert {c for c, s in cells if s == "moto"} == set(CATALOGS)
    assert {c for c, s in cells if s == "local"} == set(CATALOGS) - {"nessie", "glue"}
    assert {c for c, s in cells if s == "gcs"} == {"sqlite", "postgresql", "rest"}
    assert {c for c, s in cells if s == "versitygw"} == set(CATALOGS) - {"glue"}


def test_one_store_of_each_catalog_has_every_store() -> None:
    assert ONE_STORE.keys() == CATALOGS.keys()
    assert set(ONE_STORE.values()) == set(STORES)
    assert [pair for pair in ONE_STORE.items() if not is_offered(*pair)] == []


def test_page_shows_a_word_that_is_not_ok_as_a_note() -> None:
    words = {("sqlite", "moto"): {**dict.fromkeys(NAMES, OK), "columnar": "native: files are on s3"}}
    row = page(words).splitlines()[2].split(" | ")
    assert [row[2 + i] for i, name in enumerate(NAMES) if name == "columnar"] == ["[1]"]
    assert page(words).splitlines()[-1] == "[1] native: files are on s3"


def test_page_shows_a_cell_that_did_not_start_in_every_step() -> None:
    text = page({("hive", "local"): {"start": "TimeoutError: no answer"}})
    assert text.splitlines()[2].count("[1]") == len(NAMES)


@pytest.mark.parametrize("store", STORES)
def test_columnar_is_expected_where_arrow_reads_the_files(store: str) -> None:
    assert expected("rest", store, "columnar") == ("native: files are on gs" if store == "gcs" else OK)


def test_orphan_pass_on_nessie_is_expected_to_be_refused() -> None:
    assert [expected(c, "moto", "orphans") for c in ("rest", "nessie")] == [OK, "ICM-110"]


def test_fault_with_another_code_is_reported() -> None:
    words = {"secret": {**dict.fromkeys(COMMANDS, EXPECTED["secret"]), "objects": SAME}}
    assert wrong_faults(words) == []
    words["secret"]["run"] = "exit 0: "
    assert wrong_faults(words) == ["WRONG: secret, run: exit 0: ; expected ICM-125"]


def test_answer_with_another_outcome_is_reported() -> None:
    words: dict[str, tuple[str, ...]] = {name: (case.first, case.then) for name, case in CASES.items()}
    words |= {f"one table, {name}": (word,) for name, word in TWO_NAMES.items()} | {
        "budget of calls": (BUDGET,)
    }
    assert wrong_answers(words) == []
    words["server is away"] = ("IMPROVED, 1", "NO_OP, 0")
    (line,) = wrong_answers(words)
    assert line.startswith("WRONG: server is away: ('IMPROVED, 1', 'NO_OP, 0'); expected ('ICM-104, 0',")


def test_configuration_refers_to_secrets_by_the_environment() -> None:
    store = Store(
        "moto", "s3://b/w", "http://127.0.0.1:1", {"s3.secret-access-key": "{env: S}"}, {"S": "value"}
    )
    text = Surrounding("rest", store, "rest", "http://127.0.0.1:2", None, ()).configuration(Path("/home"))
    assert "s3.secret-access-key: {env: S}" in text
    assert "value" not in text
    assert store.resolved() == {"s3.secret-access-key": "value"}


def test_lock_has_the_jars_of_every_group_each_once(tmp_path: Path) -> None:
    lock = Parts(tmp_path)._lock
    names = [jar.file_name for group in lock.values() for jar in parse_jars(group)]
    assert list(lock) == ["gcs", "azure", "hive", "nessie"]
    assert len(names) == len(set(names))


def test_rows_that_the_writers_leave_are_known_by_arithmetic() -> None:
    counts = {name: tables.expected_rows(name).total() for name in (tables.V2, tables.V3, tables.EQUALITY)}
    assert counts == {tables.V2: 30 * 4 - 6, tables.V3: 12 * 3, tables.EQUALITY: 3 * 3}
