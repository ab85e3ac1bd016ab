from __future__ import annotations

import pytest

from iceberg_maint.config.alerts import (
    AlertmanagerConfig,
    EmailConfig,
    SlackConfig,
    WebhookConfig,
    alerts_config,
)
from iceberg_maint.config.document import AlertsSection
from iceberg_maint.config.document_reader import parse_document
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.errors import ConfigurationError

HEAD = "catalogs: {lake: {type: in-memory}}\nalerts:\n  receivers:\n    r: "


def section(receiver: str) -> AlertsSection:
    alerts = parse_document(HEAD + receiver, "test.yaml").alerts
    assert alerts is not None
    return alerts


def receiver_of(receiver: str, **environ: str) -> object:
    return alerts_config(section(receiver), Resolver(environ)).receivers["r"].receiver


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{kind: slack, url: {env: URL}}", SlackConfig("https://hooks.example.org/x")),
        (
            "{kind: webhook, url: 'https://a.example.org', headers: {Authorization: {env: URL}}}",
            WebhookConfig("https://a.example.org", {"Authorization": "https://hooks.example.org/x"}),
        ),
        ("{kind: alertmanager, url: 'http://am:9093'}", AlertmanagerConfig("http://am:9093", {})),
        (
            "{kind: email, host: smtp, sender: a@b.org, to: [c@d.org]}",
            EmailConfig("smtp", 587, "a@b.org", ("c@d.org",), None, None, True),
        ),
    ],
)
def test_receiver_of_each_kind_is_read(text, expected):
    assert receiver_of(text, URL="https://hooks.example.org/x") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4711", "ICM-100 alerts.receivers.r is 4711. It must be a mapping with the key 'kind'"),
        ("swordfish", "ICM-100 alerts.receivers.r is text. It must be a mapping with the key 'kind'"),
        (
            "{url: 'https://a.org'}",
            "ICM-100 alerts.receivers.r.kind is missing. Fix: set alerts.receivers.r.kind to slack,",
        ),
        (
            "{kind: smtp}",
            "ICM-100 alerts.receivers.r.kind is 'smtp'. It must be slack, webhook, email or alertmanager.",
        ),
        (
            "{kind: 3}",
            "ICM-100 alerts.receivers.r.kind is a number. It must be slack, webhook, email or alertmanager.",
        ),
        ("{kind: 'Sword fish'}", "ICM-100 alerts.receivers.r.kind is text. It must be slack,"),
        ("{kind: slack, colour: red}", "ICM-100 alerts.receivers.r.colour is unknown"),
        ("{kind: slack, url: 'https://hooks.example.org/x'}", "ICM-118 alerts.receivers.r.url is a secret"),
        ("{kind: webhook, url: 'file:///etc/passwd'}", "ICM-100 alerts.receivers.r.url is not an address"),
        ("{kind: webhook, url: 'https://a.org/ x'}", "ICM-100 alerts.receivers.r.url is not an address"),
        (
            "{kind: webhook, url: 'https://a.org', headers: {'a b': c}}",
            "alerts.receivers.r.headers.'a b' is no",
        ),
        ("{kind: email, host: smtp, sender: a@b.org, to: []}", "ICM-100 alerts.receivers.r.to is empty"),
        ("{kind: email, host: smtp, sender: a@b.org, to: ['x, y@z']}", "alerts.receivers.r.to has 'x, y@z'"),
        (
            "{kind: email, host: 'a b', sender: a@b.org, to: [a@b.org]}",
            "ICM-100 alerts.receivers.r.host is 'a b'",
        ),
        (
            "{kind: email, host: smtp, sender: a@b.org, to: [a@b.org], user: u, password: {env: P}, tls: false}",
            "ICM-100 alerts.receivers.r.tls is false. A password must not travel without encryption",
        ),
        ("{kind: email, host: smtp, sender: a@b.org, to: [a@b.org], user: u, password: x1}", "ICM-118"),
    ],
)
def test_wrong_receiver_is_refused_with_its_path(text, message):
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        receiver_of(text, P="secret-value")


def test_unknown_key_of_a_receiver_is_refused_with_the_nearest():
    with pytest.raises(ConfigurationError, match=r"ownerz is unknown\. Did you mean owners\?"):
        section("{kind: slack, url: {env: URL}, ownerz: [a]}")


def test_unknown_kind_of_receiver_is_refused():
    with pytest.raises(ConfigurationError, match="ICM-100"):
        section("{kind: pager, url: x}")
