"""Secrets: what counts as one, and that none is printed."""

from __future__ import annotations

import pytest

from iceberg_maint.config.secrets import redact, refuse_inline_secret, secret_parts
from iceberg_maint.errors import ConfigurationError


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("catalogs.l.properties.credential", "id:s"),
        ("catalogs.l.properties.token", "ey.x"),
        ("catalogs.l.properties.s3.access-key-id", "AKIA"),
        ("catalogs.l.properties.s3.secret-access-key", "x"),
        ("catalogs.l.properties.s3.session-token", "x"),
        ("catalogs.l.properties.jdbc.password", "x"),
        ("catalogs.l.properties.header.Authorization", "Bearer x"),
        ("spark.conf.spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.conf.javax.jdo.option.ConnectionPassword", "x"),
        ("ledger", "postgresql://u:p@h/d"),
        ("ledger", "postgresql://h/d?user=u&password=p"),
    ],
)
def test_secret_in_the_file_is_refused(path: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match="ICM-118"):
        refuse_inline_secret(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("catalogs.l.properties.token-refresh-enabled", "true"),
        ("catalogs.l.properties.oauth2-server-uri", "https://x/token"),
        ("catalogs.l.properties.token-expires-in-ms", "3600000"),
        ("catalogs.l.properties.client.credentials-provider", "com.example.Provider"),
        ("catalogs.l.properties.s3.endpoint", "http://minio:9000"),
        ("catalogs.secret_lake.properties.s3.region", "eu-west-1"),
        ("ledger", "postgresql://u@h/d"),
    ],
)
def test_setting_about_a_secret_is_none(path: str, text: str) -> None:
    refuse_inline_secret(path, text)


def test_secret_is_masked_wherever_it_stands() -> None:
    secrets = secret_parts("postgresql://u:p%40ss/w@h/d", "ledger") | secret_parts("tok-123", "x.token")
    assert redact("ledger postgresql://u:p%40ss@h failed with tok-123!", secrets) == (
        "ledger postgresql://u:***@h failed with ***!"
    )


def test_short_secret_is_masked_only_as_a_word() -> None:
    assert redact("key abc in abcdef", {"abc"}) == "key *** in abcdef"


def test_plain_address_from_the_environment_is_no_secret() -> None:
    assert secret_parts("https://rest.example/v1", "catalogs.l.uri") == set()
    assert secret_parts("https://rest.example/v1", "catalogs.l.properties.token") == {
        "https://rest.example/v1"
    }


def test_password_in_an_unknown_address_is_masked_too() -> None:
    assert redact("cannot reach thrift://me:pw@host:9083", ()) == "cannot reach thrift://me:***@host:9083"
