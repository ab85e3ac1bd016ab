"""Runs every script of this folder and compares its outcome with the one that index.md says was seen.

A script that ends otherwise than with `FAULT: …` or `fixed` is an error, and so is another outcome than the page's.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def seen():
    """Outcome by script, of the page's tables."""
    rows = re.findall(
        r"^\| [^|]+ \| `(\w+)\.py` \| [^|]* \| (fault|fixed)\b",
        (FOLDER / "index.md").read_text("utf-8"),
        re.MULTILINE,
    )
    return {script: outcome.upper() if outcome == "fault" else outcome for script, outcome in rows}


def outcome(script):
    """`FAULT`, `fixed`, `ERROR`, or `absent` if a library is, and the line that says so."""
    command = [sys.executable, str(FOLDER / f"{script}.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    last = (run.stdout.strip().splitlines() or [""])[-1]
    if run.returncode == 1 and last.startswith("FAULT: "):
        return "FAULT", last.removeprefix("FAULT: ")
    if run.returncode == 0 and last == "fixed":
        return "fixed", ""
    if "ModuleNotFoundError: No module named 'chdb'" in run.stderr:
        return "absent", "install chdb-core"
    return "ERROR", (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]


def main(names):
    expected, unexpected = seen(), 0
    for script in names or sorted(expected):
        found, text = outcome(script)
        differs = found not in ("absent", expected.get(script))
        unexpected += differs
        note = f" [index.md says {expected.get(script)}]" if differs else ""
        print(f"{found:5}  {script}{note}  {text[:160]}", flush=True)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
