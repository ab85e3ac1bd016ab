"""Sends many texts to the JVM as one text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.functions import SEPARATOR


def texts_of(bridge: Bridge, texts: Iterable[str]) -> Any:
    """A Java stream of these strings. They cross as one text."""
    pattern = bridge.jvm.java.util.regex.Pattern.compile(SEPARATOR)
    return pattern.splitAsStream(SEPARATOR.join(texts))
