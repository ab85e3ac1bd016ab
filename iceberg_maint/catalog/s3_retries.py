"""How often Arrow repeats a request to S3 that the store throttles or answers by an error of its own."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy

TRIES = 5
"""Arrow's own default is three: a burst of `503 SlowDown` lasts longer."""


class S3Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """The strategy that PyIceberg makes from its name in the property `s3.retry-strategy-impl`."""

    def __init__(self) -> None:
        super().__init__(max_attempts=TRIES)


RETRIES_PROPERTY = "s3.retry-strategy-impl"
RETRIES_CLASS = f"{S3Retries.__module__}.{S3Retries.__qualname__}"
