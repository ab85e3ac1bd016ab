"""Lists the suites, benches or demos, or runs one: `make qualify`, `make bench BENCH=gate`, `make demo DEMO=race`.

    python -m iceberg_maint_tests.nightly.named qualify [SUITE=NAME] [OPTION=VALUE…]
    python -m iceberg_maint_tests.nightly.named apart LOCK
    python -m iceberg_maint_tests.nightly.named readme

`apart` installs a lock of requirements/ into .cache/apart/LOCK; a run does so for what it needs. `readme` writes the page of
the folder `qualification`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from iceberg_maint_tests.nightly.suites import PROJECT, VARIABLES, Suite, load, named

APART = PROJECT / ".cache" / "apart"
README = PROJECT / "iceberg_maint_tests" / "qualification" / "README.md"
OF_MAKE = {"PYTHON", "WORKERS", "JAVA_OPTS", "RECORD"}
"""Variables of a call of `make` that are no options of a suite."""
_HEAD = """\
# Qualification

Suites that `make test` does not run; `make test` collects the tests of their own parts only. `make qualify` lists them, and
`make qualify SUITE=kill` runs one. Written by `make reference` from [the list](../nightly/suites.toml).

| Suite | Finds what no other suite finds |
|---|---|
"""


def install(lock: str) -> None:
    """Installs a lock into a folder of its own, unless that is of this lock and Python."""
    source, folder = PROJECT / "requirements" / f"{lock}.txt", APART / lock
    stamp = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()
    complete = folder / ".complete"
    if complete.exists() and complete.read_text("utf-8") == stamp:
        return
    print(f"==> Installing requirements/{lock}.txt into {folder.relative_to(PROJECT)}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    apart = ["--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([*pip, *apart, "--require-hashes", "-r", str(source)], check=True)
    complete.write_text(stamp, "utf-8")


def listing(kind: str, suites: Sequence[Suite]) -> str:
    """A line for each suite of a kind."""
    lines = []
    for suite in (s for s in suites if s.kind == kind):
        options = " ".join(f"{name}={value}" for name, value in suite.options.items())
        lines.append(f"  {suite.name:22} {suite.about}{f' ({options})' if options else ''}")
    variable = VARIABLES[kind]
    return "\n".join([f"make {kind} {variable}=NAME [OPTION=VALUE] [ARGS='…']", "", *lines])


def readme(suites: Sequence[Suite]) -> str:
    """The page of the folder of suites."""
    return _HEAD + "".join(f"| `{s.name}` | {s.about} |\n" for s in suites if s.kind == "qualify")


def main(arguments: Sequence[str]) -> int:
    kind, *given = arguments
    if kind == "apart":
        for lock in given:
            install(lock)
        return 0
    suites = load()
    if kind == "readme":
        README.write_text(readme(suites), "utf-8")
        return 0
    values = {k: v for k, _, v in (word.partition("=") for word in given) if k not in OF_MAKE}
    if not (name := values.pop(VARIABLES[kind], "")):
        print(listing(kind, suites))
        return 0
    try:
        suite = named(kind, name, suites)
        line = suite.line(values)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for need in suite.needs:
        install(need)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    os.chdir(PROJECT)
    return os.execvpe("bash", ["bash", "-e", "-u", "-o", "pipefail", "-c", line], environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
