"""The file reader of Pipes takes the beginning of a line for a message, and reads no further one

Versions: Dagster 1.13.27.

Expected: both messages arrive.

Spec: "Message reader that reads messages by tailing a specified file." (docstring of PipesFileMessageReader)

Actual: `tail_file` yields what `readline` returns at the end of the file, also a line without its end. The reader fails on the
JSON, its thread ends, and all later messages are lost. `PipesFileMessageWriterChannel` writes a message of more than 8 KiB by
several calls of the system, so on a loaded machine it happens to large messages.
"""

import tempfile
import threading
import time
from pathlib import Path

import dagster
from dagster import PipesFileMessageReader


class Handler:
    def __init__(self):
        self.messages = []

    def handle_message(self, message):
        self.messages.append(message)

    def report_pipes_framework_exception(self, origin, error):
        pass


def reproduce():
    handler, path = Handler(), Path(tempfile.mkdtemp(), "messages")
    threading.excepthook = lambda _: None
    with PipesFileMessageReader(str(path)).read_messages(handler), path.open("a") as file:
        file.write('{"a": ')
        file.flush()
        time.sleep(0.5)
        file.write('1}\n{"b": 2}\n')
        file.flush()
        time.sleep(0.5)
    return None if len(handler.messages) == 2 else f"{len(handler.messages)} of 2 messages arrived"


print("Dagster", dagster.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
