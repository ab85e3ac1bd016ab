"""Requests a reload of our code location from a running Dagster webserver."""

from __future__ import annotations

from urllib.parse import urlsplit

BY_HAND = "reload the code location (Deployment > Reload), or set ICEBERG_MAINT_DAGSTER_URL to reload it automatically"


def reload_location(webserver_url: str | None, location: str | None, why: str) -> str:
    """Reloads the location of this name over GraphQL and returns the result as a sentence.

    Without an address or a name (outside the daemon), or if the reload fails, the sentence says how to
    reload by hand. `why` is the cause of the reload.
    """
    by_hand = f"{why}: {BY_HAND}"
    if webserver_url is None or location is None:
        return by_hand
    from dagster_graphql import (
        DagsterGraphQLClient,
        DagsterGraphQLClientError,
        ReloadRepositoryLocationStatus,
    )

    url = urlsplit(webserver_url)
    try:
        client = DagsterGraphQLClient(
            url.hostname or "127.0.0.1",
            port_number=url.port,
            use_https=url.scheme == "https",
            timeout=20,
        )
        info = client.reload_repository_location(location)
    except (DagsterGraphQLClientError, OSError) as error:
        return f"{by_hand} ({webserver_url} does not answer: {_cause(error)})"
    if info.status is not ReloadRepositoryLocationStatus.SUCCESS:
        return f"{by_hand} ({webserver_url}: {info.message})"
    return f"{why}: code location reloaded"


def _cause(why: BaseException) -> str:
    """The innermost cause, on one line: the client's own text repeats its whole query."""
    while why.__cause__ is not None:
        why = why.__cause__
    return f"{type(why).__name__}: {' '.join(str(why).split())[:200]}"
