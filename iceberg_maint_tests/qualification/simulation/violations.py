"""What the watch raises: a broken invariant, a run that ended as none may."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant is broken."""


class DefectError(AssertionError):
    """A run ended by what no run may end by."""
