"""The order of a batch's rows: STARTED → INTENT → ATTEMPT → OUTCOME → CURSOR."""

from __future__ import annotations


class OutOfOrderError(RuntimeError):
    """A call that would break the order of a batch's rows. It is a defect of the caller; nothing was
    written."""
