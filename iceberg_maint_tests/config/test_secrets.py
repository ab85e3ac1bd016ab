"""Secrets: what counts as one, and that none is printed."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from functools import partial

import pytest

from iceberg_maint.config.secrets import redact, redact_error, refuse_inline_secret, secret_parts
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
        ("catalogs.l.properties.adls.account-key", "x=="),
        ("catalogs.l.properties.adls.auth.shared-key.account.key", "x=="),
        ("catalogs.l.properties.adls.connection-string", "AccountName=a;AccountKey=x==;"),
        ("catalogs.l.properties.adls.connection-string.a.dfs.core.windows.net", "https://a/?sv=1&sig=x"),
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
        ("catalogs.l.properties.gcs.oauth2.token-expires-at", "1795460060434"),
        ("catalogs.l.properties.s3.session-token-expires-at-ms", "1795460060434"),
        ("catalogs.l.properties.client.credentials-provider", "com.example.Provider"),
        ("catalogs.l.properties.adls.auth.shared-key.account.name", "account"),
        ("catalogs.l.properties.adls.connection-string.a", "https://a.dfs.core.windows.net"),
        ("catalogs.l.properties.s3.endpoint", "http://minio:9000"),
        ("catalogs.secret_lake.properties.s3.region", "eu-west-1"),
        ("catalogs.secret_lake.warehouse", "s3://lake/warehouse"),
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


@pytest.mark.parametrize(
    "written",
    [json.dumps, partial(json.dumps, ensure_ascii=False), lambda s: json.dumps(json.dumps(s)), repr, ascii],
)
def test_secret_is_masked_as_json_and_python_write_it(written: Callable[[str], str]) -> None:
    secret = "a\"b\\c\nd'\u00e9/"
    assert set(redact(written(secret), {secret})) <= set("*\"\\'")


def test_password_of_an_address_is_masked_also_as_its_owner_writes_it() -> None:
    secrets = secret_parts("postgresql://u:p%40ss%2Fw@h/d", "ledger")
    assert redact("p@ss/w, p%40ss%2Fw and p%2540ss%252Fw", secrets) == "***, *** and ***"


def test_short_secret_is_masked_only_as_a_word() -> None:
    assert redact("key abc in abcdef", {"abc"}) == "key *** in abcdef"


def test_plain_address_from_the_environment_is_no_secret() -> None:
    assert secret_parts("https://rest.example/v1", "catalogs.l.uri") == set()
    assert secret_parts("https://rest.example/v1", "catalogs.l.properties.token") == {
        "https://rest.example/v1"
    }


def test_password_in_an_unknown_address_is_masked_too() -> None:
    assert redact("cannot reach thrift://me:pw@host:9083", ()) == "cannot reach thrift://me:***@host:9083"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("s3.secret-access-key=abc/d+e, s3.region=eu", "s3.secret-access-key=***, s3.region=eu"),
        ("Authorization: Bearer ey.x.y failed", "Authorization: Bearer *** failed"),
        ('{"s3.session-token": "a b", "x": "y"}', '{"s3.session-token": "***", "x": "y"}'),
        ("{'password': 'pw', 'user': 'u'}", "{'password': '***', 'user': 'u'}"),
        (
            "jdbc:postgresql://h/d?user=u&password=pw&ssl=true",
            "jdbc:postgresql://h/d?user=u&password=***&ssl=true",
        ),
        ("fs.s3a.access.key = AKIA", "fs.s3a.access.key = ***"),
        ("PASSWD=pw", "PASSWD=***"),
        ("db.pwd=pw", "db.pwd=***"),
        ("credential=pw", "credential=***"),
        ("account_key=pw", "account_key=***"),
        ("client.secret=pw", "client.secret=***"),
        (r'{"password": "a\"bc\\"}', '{"password": "***"}'),
        (r'{"m": "{\"password\": \"a\\\"b c\"}", "x": "y"}', r'{"m": "{\"password\": \"***\"}", "x": "y"}'),
        ('failed: {"password": "a bc', 'failed: {"password": ***'),
        # The long s counts as an s, and the sign of kelvin as a k.
        ("pa\u017fsword=pw", "pa\u017fsword=***"),
        ("to\u212aen=pw", "to\u212aen=***"),
    ],
)
def test_value_of_a_secret_key_is_masked_in_every_text(text: str, masked: str) -> None:
    """Credentials that a catalog hands out are in no configuration."""
    assert redact(text, ()) == masked


@pytest.mark.parametrize(
    "text",
    [
        "its token is in the table",
        "token-expires-in-ms=3600000",
        "oauth2-server-uri: https://x/token",
        "token-refresh-enabled: true",
        "ICM-118 catalogs.l.properties.token is a secret.",
        "lake.db.secrets: IMPROVED (small_files)",
    ],
)
def test_text_about_secrets_stays(text: str) -> None:
    assert redact(text, ()) == text


def test_error_without_a_secret_is_raised_as_it_is() -> None:
    error = OSError("no such host")
    assert redact_error(error, {"tok-123"}) is error


def test_error_that_contains_a_secret_says_the_same_with_it_masked_and_forgets_its_cause() -> None:
    try:
        try:
            raise OSError("login with tok-123 failed")
        except OSError as why:
            raise ConfigurationError("ICM-104", "catalog cannot be reached: tok-123.", "start it.") from why
    except ConfigurationError as error:
        masked = redact_error(error, {"tok-123"})
    assert isinstance(masked, ConfigurationError)
    assert (masked.code, masked.exit_code) == ("ICM-104", 2)
    assert str(masked) == "ICM-104 catalog cannot be reached: ***. Fix: start it."
    assert "tok-123" not in "".join(traceback.format_exception(masked))


def test_error_whose_cause_alone_contains_a_secret_forgets_the_cause() -> None:
    try:
        try:
            raise ValueError("password=hunter2")
        except ValueError as why:
            raise OSError("no connection") from why
    except OSError as error:
        masked = redact_error(error, ())
    assert str(masked) == "OSError: no connection"
    assert "hunter2" not in "".join(traceback.format_exception(masked))
