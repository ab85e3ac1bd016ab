"""Builds sdist and wheel, installs the wheel into an empty environment outside the checkout, and uses it.

    python -m iceberg_maint_tests.qualification.wheel

Packages come from the hashed locks, jars from Maven into an empty cache. Each step is printed with its time.
The exit code is 0 only if every step succeeded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from iceberg_maint_tests.qualification.wheel.build import build

# Nothing of these may lead the installed program back to the checkout.
_HIDDEN = ("PYTHON", "ICEBERG_MAINT_", "DAGSTER_", "VIRTUAL_ENV", "PIP_FIND_LINKS", "XDG_CACHE_HOME")
_INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--no-input")
_LOCKED = (*_INSTALL, "--require-hashes", "--no-deps", "--no-build-isolation", "-r")
_WHERE = """\
import pathlib, sys, iceberg_maint
package = pathlib.Path(iceberg_maint.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert (package / "py.typed").is_file()
print(package)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder that the wheel is used in, its environment, and the variables of its processes."""

    folder: Path
    environ: dict[str, str]

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    def step(self, name: str, program: Path | str, *arguments: str, says: str = "", **more: str) -> str:
        """Runs one step. Ends this process when it fails or does not say `says`."""
        print(f"==> {name}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            [str(program), *arguments],
            cwd=self.folder,
            env=self.environ | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0 or says not in done.stdout:
            print(f"{done.stdout}\nFAILED: {name}: exit code {done.returncode}, expected 0 and {says!r}")
            raise SystemExit(1)
        print(f"    {time.monotonic() - started:.1f} s", flush=True)
        return done.stdout

    def pip(self, name: str, *arguments: str, **more: str) -> None:
        self.step(name, self.bin / "python", "-m", "pip", *arguments, **more)


def demo_lock(project: Path) -> str:
    """The entries of the development lock that the extra `demo` needs."""
    document = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    names = {Requirement(line).name for line in document["project"]["optional-dependencies"]["demo"]}
    lock = (project / "requirements" / "dev.txt").read_text("utf-8")
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    return "".join(entry for entry in entries if entry.partition("==")[0].partition("[")[0] in names)


def install(place: Place) -> None:
    """Builds both archives and installs the wheel; the locks are those in the sdist."""
    print("==> build the sdist, and the wheel from it", flush=True)
    built = build(place.folder)
    with tarfile.open(built.sdist) as archive:
        archive.extractall(place.folder / "sdist", filter="data")
    [project] = (place.folder / "sdist").iterdir()
    for name in ("docs/reference/contract.md", "iceberg_maint_tests/qualification/wheel/__main__.py"):
        assert (project / name).is_file(), name
    print(f"    {built.sdist.name}, {built.wheel.name}", flush=True)

    place.step("make an empty environment", sys.executable, "-m", "venv", str(place.folder / "venv"))
    links = {"PIP_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    for name in ("build", "runtime"):
        lock = project / "requirements" / f"{name}.txt"
        place.pip(f"install requirements/{name}.txt", *_LOCKED, str(lock), **links)
    (place.folder / "demo.txt").write_text(demo_lock(project), "utf-8")
    place.pip("install what the extra 'demo' needs", *_LOCKED, str(place.folder / "demo.txt"), **links)
    # Without an index pip fails where the wheel needs what the locks do not hold.
    extras = "demo,spark"
    place.pip("install the wheel with its extras", *_INSTALL, "--no-index", f"{built.wheel}[{extras}]")
    place.pip("check the requirements of all packages", "check")
    check_java = [
        str(place.bin / "python"),
        "-m",
        "iceberg_maint.engines.spark.session.java",
        "--cache",
        "java",
    ]
    if subprocess.run(
        check_java, cwd=place.folder, env=place.environ, capture_output=True, check=False
    ).returncode:
        lock = project / "requirements" / "java.txt"
        place.pip("install a Java: this machine has none", *_LOCKED, str(lock), **links)


def use(place: Place) -> None:
    """Does what the README tells a user of the wheel."""
    python, program, dagster = place.bin / "python", place.bin / "iceberg-maint", place.bin / "dagster"
    where = place.step("import the package from the environment", python, "-c", _WHERE)
    print(f"    {where.strip()}")
    place.step("iceberg-maint --version", program, "--version", says="iceberg-maint, version")
    place.step("iceberg-maint init", program, "init", "lake", says="iceberg-maint doctor --config")
    lake = place.folder / "lake"
    own = {
        "DAGSTER_HOME": str(lake / "dagster_home"),
        "ICEBERG_MAINT_CONFIG": str(lake / "iceberg_maint.yaml"),
    }
    said = place.step(
        "iceberg-maint doctor", program, "doctor", says="3 jars with the right checksums", **own
    )
    print("".join(f"    {line.rstrip()}\n" for line in said.splitlines()), end="")
    definitions = ("-m", "iceberg_maint.definitions")
    validate = ("definitions", "validate")
    all_passed = "All code locations passed validation"
    place.step("dagster definitions validate", dagster, *validate, *definitions, says=all_passed, **own)
    workspace = ("-w", f"{own['DAGSTER_HOME']}/workspace.yaml")
    place.step(
        "dagster definitions validate -w workspace.yaml",
        dagster,
        *validate,
        *workspace,
        says=all_passed,
        **own,
    )
    demo = ("demo", "--data", "demo", "--fresh", "--small")
    said = place.step("iceberg-maint demo", program, *demo, says="good: 9 of 10 tables healed")
    print("".join(f"    {line}\n" for line in said.splitlines() if line.startswith("good:")), end="")
    own = {
        "DAGSTER_HOME": str(place.folder / "demo" / "dagster_home"),
        "ICEBERG_MAINT_CONFIG": str(place.folder / "demo" / "iceberg_maint.yaml"),
    }
    listed = ("asset", "list", *definitions)
    place.step("dagster asset list on the demo lake", dagster, *listed, says="lake/demo/weather", **own)


def main() -> int:
    """The exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="iceberg-maint-wheel-") as name:
        folder = Path(name).resolve()
        environ = {k: v for k, v in os.environ.items() if not k.startswith(_HIDDEN)}
        place = Place(folder, environ)
        install(place)
        # An empty cache: the installed program brings its own jars.
        use(Place(folder, environ | {"XDG_CACHE_HOME": str(folder / "cache")}))
    print(f"The wheel works: {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
