"""Holds commit messages to the rules in CONTRIBUTING.md.

commit_message.py --file MESSAGE     a message about to be committed
commit_message.py --range A..B       the commits of a range, merges left out
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_SUBJECT = 72


def problems(message: str) -> list[str]:
    """What is wrong with one message, comments of git left out."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    first = subject.partition(" ")[0]
    wrong = []
    if len(subject) > MAX_SUBJECT:
        wrong.append(f"the subject has {len(subject)} characters. Fix: write at most {MAX_SUBJECT}.")
    if subject.endswith("."):
        wrong.append("the subject ends with a full stop. Fix: remove it.")
    participle = re.fullmatch(r"[A-Z][a-z]+(ed|ing)", first) and first not in IMPERATIVES
    if not first[:1].isupper() or participle or first in NO_IMPERATIVES:
        wrong.append(
            f"the subject starts with '{first}'. Fix: start with an imperative, such as 'Add' or 'Refuse'."
        )
    if len(lines) > 1 and lines[1].strip():
        wrong.append("the second line is not empty. Fix: put an empty line between subject and body.")
    return wrong


IMPERATIVES = frozenset({"Bring", "Embed", "Feed", "Need", "Seed", "Speed"})
"""Imperatives that look like participles."""
NO_IMPERATIVES = frozenset(
    {"A", "An", "The", "This", "What", "Where", "Every", "Each", "Some", "Adds", "Fixes"}
)
"""First words of subjects that tell what is, not what the commit does."""


def messages(revisions: str) -> list[str]:
    """The messages of a range, newest first."""
    command = ["git", "log", "--no-merges", "--format=%B%x00", revisions]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [message.strip("\n") for message in text.split("\0") if message.strip()]


def main(arguments: list[str]) -> int:
    """Prints every problem; 1 where there is one."""
    match arguments:
        case ["--file", name]:
            checked = [Path(name).read_text("utf-8")]
        case ["--range", revisions]:
            checked = messages(revisions)
        case _:
            print(__doc__)
            return 2
    wrong = [f"{m.partition(chr(10))[0]}: {problem}" for m in checked for problem in problems(m)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
