"""Asks a running Dagster webserver to load our code location again."""

from __future__ import annotations

from urllib.parse import urlsplit

from dagster import DagsterError

BY_HAND = (
    "the table list changed: reload the code location (Deployment > Reload), or set "
    "ICEBERG_MAINT_DAGSTER_URL to have it done"
)


def reload_location(webserver_url: str | None, location: str | None) -> str:
    """Reloads the location of this name over GraphQL; without an address or a name (outside the
    daemon), or when that fails, says how to do it by hand."""
    if webserver_url is None or location is None:
        return BY_HAND
    from dagster_graphql import DagsterGraphQLClient, ReloadRepositoryLocationStatus

    url = urlsplit(webserver_url)
    try:
        client = DagsterGraphQLClient(
            url.hostname or "127.0.0.1",
            port_number=url.port,
            use_https=url.scheme == "https",
            timeout=20,
        )
        info = client.reload_repository_location(location)
    except (DagsterError, OSError) as why:
        return f"{BY_HAND} ({webserver_url}: {type(why).__name__}: {why})"
    if info.status is not ReloadRepositoryLocationStatus.SUCCESS:
        return f"{BY_HAND} ({webserver_url}: {info.message})"
    return "the table list changed: code location reloaded"
