"""Names made to be executed: SQL, shells, paths, formats, terminals, and what merely looks like others."""

from __future__ import annotations

import itertools

HOSTILE = "'$(id)``<b>&lt;|*x*_y_[a](b)\"--;\x1b[2J\x9b1m\u202e\\z"
"""Marks of shells, HTML, Markdown, SQL, terminals and of the text direction, without a space or a dot."""
PAYLOADS = (
    "'; DROP TABLE db.sick; --",
    '"; DROP TABLE db.sick; --',
    "`; DROP TABLE db.sick; --",
    "x' OR '1'='1",
    "x` OR 1=1 --",
    "sick', options => map('rewrite-all','true')) --",
    "sick UNION SELECT 1",
    "sick/**/WHERE/**/1=1",
    "sick)",
    "(SELECT 1)",
    "$(touch {mark})",
    "`touch {mark}`",
    "; touch {mark};",
    "| touch {mark}",
    "&& touch {mark}",
    "\n touch {mark}\n",
    "${{jndi:ldap://127.0.0.1/{mark}}}",
    "{{{{7*7}}}}",
    "{{0.__class__}}",
    "%s%s%n",
    "../../etc/passwd",
    "..",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\x\\y",
    "%2e%2e%2f",
    "a%00b",
    "\x00",
    "\x1b[2J\x1b]0;x\x07",
    "\u202eelbat",
    "si\u0441k",
    "sick\u200b",
    "e\u0301",
    "x" * 5000,
    "__import__('os').system('touch {mark}')",
    "!!python/object/apply:os.system ['touch {mark}']",
    "<script>alert(1)</script>",
    "--config=/etc/passwd",
    "-x",
    "*",
    "?",
    "[a-z]",
    "sick snapshot_id_123",
    "sick.snapshots",
    "sick.files",
    "SICK",
    " sick",
    "sick ",
    "''",
    "``",
)
SHAPES = ("{0}", "db.{0}", "{0}.sick", "lake.db.{0}", "lake.{0}.sick", "{0}.db.sick", "lake.db.sick.{0}")


def names(mark: str) -> list[str]:
    """Every payload in every place of a name. `mark` is a file that who executes one would make."""
    found = (
        shape.format(payload.format(mark=mark)) for shape, payload in itertools.product(SHAPES, PAYLOADS)
    )
    return list(dict.fromkeys(found))


def partitions(mark: str) -> list[str]:
    """Every payload as a partition's key: bare, as a value, as a field, below a spec."""
    shapes = ("{0}", "day={0}", "{0}=1", "spec=1/day={0}", "day=1/{0}", "spec={0}/day=1")
    found = (
        shape.format(payload.format(mark=mark)) for shape, payload in itertools.product(shapes, PAYLOADS)
    )
    return list(dict.fromkeys(found))
