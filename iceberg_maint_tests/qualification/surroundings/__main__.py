"""One behaviour suite over catalogs and stores: `make qualify SUITE=surroundings`.

    python -m iceberg_maint_tests.qualification.surroundings [--catalog sqlite]... [--store local]... [--cache .cache]
        [--results FILE] [--one-store] [--faults] [--rest]

Prints a table of catalog, store and operation, one of the answers of a REST catalog and the outcome of each run, then one of
the faults of a store and the code of each command, and exits with 1 if a cell differs from what is expected. `--store azure`
needs npm, and `adlfs` on PYTHONPATH. With `--results` the cells are added to those in the file, and the table has all of
them. With `--one-store` each catalog runs on one store. With `--faults` only the last table is made, with `--rest` only the
second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from iceberg_maint_tests.qualification.surroundings.azure import azure, azurite
from iceberg_maint_tests.qualification.surroundings.catalogs import CATALOGS, Surrounding
from iceberg_maint_tests.qualification.surroundings.faults import fault_page, run_faults, wrong_faults
from iceberg_maint_tests.qualification.surroundings.matrix import (
    ON_REQUEST,
    ONE_STORE,
    STORES,
    expected,
    is_offered,
    page,
)
from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.rest_runs import rest_answers, rest_page, wrong_answers
from iceberg_maint_tests.qualification.surroundings.stores import (
    PROGRAMS,
    Store,
    gcs,
    local,
    moto,
    program_of,
    versitygw,
)
from iceberg_maint_tests.support import jvm

CELL_SECONDS = 900


def main() -> int:
    """Runs the cells one after the other."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint_tests.qualification.surroundings")
    parser.add_argument("--catalog", action="append", choices=list(CATALOGS))
    parser.add_argument("--store", action="append", choices=(*STORES, *ON_REQUEST))
    parser.add_argument("--cache", type=Path, default=Path(".cache"))
    parser.add_argument("--keep", type=Path, help="keep the logs in this folder")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--one-store", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--rest", action="store_true")
    given = parser.parse_args()
    parts = Parts(given.cache.absolute())
    words = stored(given.results)
    with tempfile.TemporaryDirectory(prefix="surroundings-") as scratch:
        root = (given.keep or Path(scratch)).absolute()
        for catalog in () if given.faults or given.rest else given.catalog or CATALOGS:
            for store in given.store or ([ONE_STORE[catalog]] if given.one_store else STORES):
                if not is_offered(catalog, store):
                    continue
                begin = time.monotonic()
                words[catalog, store] = run_cell(root / f"{catalog}-{store}", catalog, store, parts)
                print(f"{catalog} x {store}: {time.monotonic() - begin:.0f} s", flush=True)
                keep(given.results, words)
        some = given.catalog or given.store
        refusals = {} if some or given.rest else faults_of(root / "faults", parts)
        answers = {} if some or given.faults else rest_answers(root / "rest")
    print(page(words))
    if answers:
        print(f"\n{rest_page(answers)}")
    if refusals:
        print(f"\n{fault_page(refusals)}")
    wrong = wrong_answers(answers) if answers else []
    wrong += wrong_faults(refusals) + [
        f"WRONG: {c} x {s}, {step}: {word}; expected {expected(c, s, step)}"
        for (c, s), steps in words.items()
        for step, word in steps.items()
        if word != expected(c, s, step)
    ]
    print("\n".join(wrong))
    return int(bool(wrong))


def faults_of(folder: Path, parts: Parts) -> dict[str, dict[str, str]]:
    """The words of all faults. None without versitygw."""
    program = program_of("versitygw", parts.cache)
    return {} if program is None else run_faults(folder, program)


def stored(results: Path | None) -> dict[tuple[str, str], dict[str, str]]:
    """The cells of earlier runs."""
    if results is None or not results.is_file():
        return {}
    cells = json.loads(results.read_text(encoding="utf-8"))
    return {(cell["catalog"], cell["store"]): cell["steps"] for cell in cells}


def keep(results: Path | None, words: dict[tuple[str, str], dict[str, str]]) -> None:
    """Stores all cells."""
    if results is not None:
        cells = [{"catalog": c, "store": s, "steps": steps} for (c, s), steps in words.items()]
        results.write_text(json.dumps(cells, indent=1), encoding="utf-8")


def run_cell(folder: Path, catalog: str, store: str, parts: Parts) -> dict[str, str]:
    """The word of each step."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        try:
            running = stack.enter_context(_store(store, folder, parts))
            surrounding = stack.enter_context(CATALOGS[catalog](folder, running, parts))
        except Exception as error:  # noqa: BLE001 - the table has it
            return {"start": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        return _steps(surrounding, folder)


def _store(name: str, folder: Path, parts: Parts) -> ExitStack | Store:
    if name == "azure":
        return azure(folder, azurite(parts.cache))
    served = {"versitygw": (versitygw, "versitygw"), "gcs": (gcs, "fake-gcs-server")}
    if name in served:
        start, program_name = served[name]
        program = program_of(program_name, parts.cache)
        if program is None:
            raise FileNotFoundError(f"{PROGRAMS[program_name]} needs Go")
        return start(folder, program)
    return {"local": local, "moto": moto}[name](folder)


def _steps(surrounding: Surrounding, folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    config = home / "iceberg_maint.yaml"
    config.write_text(surrounding.configuration(home), encoding="utf-8")
    environment = {**os.environ, **jvm.environment(), **surrounding.store.secrets, **surrounding.environment}
    command = [sys.executable, "-m", "iceberg_maint_tests.qualification.surroundings.cell", str(config)]
    with (folder / "cell.log").open("wb") as log:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=CELL_SECONDS,
            check=False,
            text=True,
        )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        print(f"  {line['step']}: {line['word']} ({line['seconds']} s)", flush=True)
    return {line["step"]: line["word"] for line in lines} or {"start": f"exit {ended.returncode}"}


if __name__ == "__main__":
    raise SystemExit(main())
