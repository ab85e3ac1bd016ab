"""Which tests several workers run together, which first, and which are slow: by their marks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SLOW = ("spark", "postgres", "slow", "seconds")
"""Marks of tests that `make test-fast` leaves out."""


def is_slow(path: Path) -> bool:
    """Whether the marks of a whole module, as its source has them, include one of these."""
    marks = re.search(r"^pytestmark = (\[[^]]*]|.*)", path.read_text("utf-8"), re.MULTILINE)
    return marks is not None and re.search(rf"pytest\.mark\.({'|'.join(SLOW)})\b", marks[1]) is not None


@cache
def scope_of_module(path: Path) -> str | None:
    """The group of a module that is marked `together`, the empty text for one that is marked `split`, else None.

    The process that hands out the tests knows them by name only, and reads the source for the marks.
    """
    text = path.read_text("utf-8") if path.exists() else ""
    if group := re.search(r"""pytest\.mark\.together\("(\w+)"\)""", text):
        return group[1]
    return "" if "pytest.mark.split" in text else None


def scope_of(nodeid: str, root: Path) -> str:
    """What goes to one worker as a whole."""
    module = nodeid.partition("::")[0]
    group = scope_of_module(root / module)
    return module if group is None else group or nodeid


def order_of(item: pytest.Item) -> int:
    """Place of the test's scope: the long modules by their seconds, then modules that need Spark, then modules of long sweeps,
    then the others, so that the last scopes to be handed out are short."""
    if long := item.get_closest_marker("long"):
        return -int(long.args[0])
    return 0 if item.get_closest_marker("spark") else 1 if item.get_closest_marker("slow") else 2


class Scheduling(LoadScopeScheduling):
    """Each worker gets its next scope when it is nearly done with its last, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self.root = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self.root)

    def remove_node(self, node: WorkerController) -> str | None:
        """Gives the rest of a lost worker's tests to others. The test that ended the worker is not run again."""
        for unit in list(self.assigned_work.get(node, {}).values()):
            for nodeid, is_done in unit.items():
                if not is_done:
                    unit[nodeid] = True
                    super().remove_node(node)
                    return nodeid
        return super().remove_node(node)

    def schedule(self) -> None:
        """Also gives the worker that replaces a lost one enough to begin: a worker holds its last test back until it
        gets another one or the end."""
        super().schedule()
        for node in self.nodes:
            while (
                self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)
            if not self.workqueue:
                node.shutdown()
