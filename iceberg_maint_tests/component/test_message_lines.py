"""Messages of a run elsewhere arrive whole, however slowly their lines are written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.component.launch import _WholeLines

pytestmark = pytest.mark.slow


class Handler:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def handle_message(self, message: Any) -> None:
        self.messages.append(message)


@pytest.mark.parametrize("cut", [1, 8191, 8192, 20_000, 30_012])
def test_line_that_is_written_in_two_parts_is_one_message(cut: int) -> None:
    handler, line = Handler(), json.dumps({"text": "é" * 5000}) + "\n"
    with _WholeLines().read_messages(handler) as where:
        with Path(where["path"]).open("a", encoding="utf-8") as file:
            file.write(line[:cut])
            file.flush()
            time.sleep(0.2)
            assert handler.messages == []
            file.write(line[cut:] + "{}\n")
            file.flush()
        time.sleep(0.2)
        assert handler.messages == [{"text": "é" * 5000}, {}]


def test_messages_that_are_written_before_the_end_are_read_after_it() -> None:
    handler = Handler()
    with _WholeLines().read_messages(handler) as where:
        Path(where["path"]).write_text("1\n2\n3\n", "utf-8")
    assert handler.messages == [1, 2, 3]
    assert not Path(where["path"]).exists()
