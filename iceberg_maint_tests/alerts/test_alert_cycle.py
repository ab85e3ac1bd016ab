"""Cycles over a fleet of one table: real messages on loopback, the real ledger in memory."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from iceberg_maint.config.alerts import EmailConfig
from iceberg_maint.core.alerts import AlertKind, Incident, Messages
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.integrations.alerts.alert_cycle import (
    SEND_SECONDS,
    ConfiguredReceiver,
    PassReport,
    run_alert_cycle,
    send_test,
)
from iceberg_maint.integrations.alerts.receivers import Alertmanager, Email, Receiver, Slack, Webhook
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.support.alerts.receivers import HttpReceiver, MailServer, serving
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.loop.world import TABLE, Process, World

REWRITE = Operation.REWRITE_DATA_FILES
QUARANTINED = PartitionHistory(ineffective=9, quarantined=True, reason="disk <full> & `gone`\n<!channel>")


class Fleet:
    """One table with small files, and a context over it."""

    def __init__(self) -> None:
        self.world = World()
        self.context: Context = self.world.context(Process())
        self.uuid = self.world.now.state.uuid
        assess(TABLE, self.context)

    def quarantine(self, *, on: bool) -> None:
        history = QUARANTINED if on else PartitionHistory()
        self.world.ledger.health.set_partition_history(self.uuid, REWRITE, {"p=a": history})

    def alert_cycle(
        self,
        receivers: Mapping[str, Receiver],
        owners: frozenset[str] = frozenset(),
        send_seconds: float = SEND_SECONDS,
    ) -> PassReport:
        self.world.clock.ms += 1000
        assess(TABLE, self.context)
        made = {n: ConfiguredReceiver(owners, lambda r=r: r) for n, r in receivers.items()}
        return run_alert_cycle(self.context, made, send_seconds)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def http() -> Iterator[HttpReceiver]:
    receiver = HttpReceiver()
    with serving(receiver.server):
        yield receiver


def kinds(report: PassReport) -> list[str]:
    return [i.kind.value for i in report.incidents if i.fired_ms is not None and i.cleared_ms is None]


def test_incident_is_sent_once_and_its_end_once(fleet: Fleet, http: HttpReceiver):
    hook = Webhook(http.url + "/hook", {"X-Team": "a"}, 5)
    fleet.quarantine(on=True)
    reports = [fleet.alert_cycle({"ops": hook}) for _ in range(3)]
    fleet.quarantine(on=False)
    reports += [fleet.alert_cycle({"ops": hook}) for _ in range(2)]

    assert [kinds(r) for r in reports] == [["quarantine"]] * 3 + [[]] * 2
    assert [r.sent for r in reports] == [1, 0, 0, 1, 0]
    begin, end = http.documents
    assert ([i["kind"] for i in begin["fired"]], begin["cleared"]) == (["quarantine"], [])
    assert (end["fired"], [i["id"] for i in end["cleared"]]) == ([], [begin["fired"][0]["id"]])
    assert begin["fired"][0]["table"] == str(TABLE)
    assert http.requests[0][0] == "/hook"
    assert http.requests[0][1]["X-Team"] == "a"


def test_receiver_that_fails_gets_the_messages_at_the_next_pass_and_fails_no_other(
    fleet: Fleet, http: HttpReceiver
):
    hook, down = Webhook(http.url, {}, 5), Webhook("http://127.0.0.1:9", {}, 0.5)
    fleet.quarantine(on=True)
    http.status = 503
    first = fleet.alert_cycle({"down": down, "ops": hook})
    assert sorted(first.failures or {}) == ["down", "ops"]
    assert (first.failures or {})["ops"].code == "ICM-151"
    http.status = 200
    second = fleet.alert_cycle({"down": down, "ops": hook})
    assert (sorted(second.failures or {}), second.sent) == (["down"], 1)
    assert len(http.documents) == 2
    assert fleet.alert_cycle({"down": down, "ops": hook}).sent == 0


@pytest.mark.parametrize("status", [401, 403])
def test_receiver_that_refuses_the_key_is_named_without_it_and_gets_the_message_later(
    status: int, fleet: Fleet, http: HttpReceiver
):
    hook = Webhook(http.url, {"Authorization": "Bearer wrong-key"}, 5)
    fleet.quarantine(on=True)
    http.status = status
    (error,) = (fleet.alert_cycle({"ops": hook}).failures or {}).values()
    assert error.code == "ICM-151"
    assert f"HTTP Error {status}" in str(error)
    assert "wrong-key" not in str(error)
    http.status = 200
    assert fleet.alert_cycle({"ops": hook}).sent == 1


def test_clock_of_this_machine_that_is_wrong_changes_no_time_of_an_incident(fleet: Fleet, http: HttpReceiver):
    class Wrong:
        """A clock 400 days ahead."""

        def now_ms(self) -> int:
            return fleet.world.clock.ms + 400 * 86_400_000

        def __getattr__(self, name: str) -> object:
            return getattr(fleet.world.clock, name)

    hook = Webhook(http.url, {}, 5)
    fleet.context = changed(fleet.context, clock=Wrong())
    fleet.quarantine(on=True)
    now_ms = fleet.world.clock.ms + 1000
    incidents = fleet.alert_cycle({"ops": hook}).incidents
    assert {i.since_ms for i in incidents} == {now_ms}
    assert [(i.kind, i.fired_ms) for i in incidents if i.fired_ms is not None] == [
        (AlertKind.QUARANTINE, now_ms)
    ]


def test_redirect_is_not_followed(fleet: Fleet, http: HttpReceiver):
    http.status = 302
    fleet.quarantine(on=True)
    report = fleet.alert_cycle({"ops": Webhook(http.url + "/hook", {}, 5)})
    assert sorted(report.failures or {}) == ["ops"]
    assert [path for path, _, _ in http.requests] == ["/hook"]


def test_slack_message_holds_no_mention_and_no_markup_of_a_table(fleet: Fleet, http: HttpReceiver):
    fleet.quarantine(on=True)
    fleet.alert_cycle({"slack": Slack(http.url, 5)})
    (document,) = http.documents
    text = document["text"]
    assert text.startswith("*lake.db.t: quarantine*\n```NEW quarantine (docs/how-to/alerts.md#quarantine)")
    assert "disk &lt;full&gt; &amp; 'gone' &lt;!channel&gt;" in text
    assert "<" not in text
    assert text.count("`") == 6


def test_mail_has_one_subject_line_and_the_action(fleet: Fleet):
    server = MailServer()
    with serving(server):
        config = EmailConfig(
            "127.0.0.1", server.port, "icm@example.org", ("oncall@example.org",), None, None, False
        )
        fleet.quarantine(on=True)
        fleet.alert_cycle({"mail": Email(config, 5)})
    (mail,) = server.mails
    assert (mail["Subject"], mail["To"]) == ("lake.db.t: quarantine", "oncall@example.org")
    assert "iceberg-maint release lake.db.t" in " ".join(mail.get_content().split())


def test_alertmanager_gets_every_open_alert_in_each_pass_and_its_end_once(fleet: Fleet, http: HttpReceiver):
    manager = Alertmanager(http.url, {}, 5)
    fleet.quarantine(on=True)
    fleet.alert_cycle({"am": manager})
    fleet.alert_cycle({"am": manager})
    fleet.quarantine(on=False)
    fleet.alert_cycle({"am": manager})
    fleet.alert_cycle({"am": manager})
    assert [path for path, _, _ in http.requests] == ["/api/v2/alerts"] * 3
    first, second, end = (d[0] for d in http.documents)
    assert first["labels"] == {"alertname": "iceberg_maint_quarantine", "table": str(TABLE), "owner": ""}
    assert first["startsAt"] == second["startsAt"] == end["startsAt"]
    assert first["endsAt"] > first["startsAt"]
    assert first["endsAt"] != second["endsAt"]
    assert end["endsAt"] < second["endsAt"]


def test_alertmanager_keeps_the_alert_of_a_table_that_was_created_again(http: HttpReceiver):
    """Labels identify an alert. The end of the dropped table has those of the new table's alert."""
    new = Incident(AlertKind.QUARANTINE, "lake.db.t", "new", "s", (), 5000, 5000)
    ended = replace(new, table_uuid="old", since_ms=1000, fired_ms=1000, cleared_ms=6000)
    other = replace(ended, table="lake.db.u")
    Alertmanager(http.url, {}, 5).send(Messages((new,), (ended, other)), (new,), 6000)
    (sent,) = http.documents
    assert [(a["labels"]["table"], a["endsAt"]) for a in sent] == [
        ("lake.db.t", "1970-01-01T00:15:06.000+00:00"),
        ("lake.db.u", "1970-01-01T00:00:06.000+00:00"),
    ]


def test_alert_of_a_clock_that_went_back_does_not_end_before_it_starts(http: HttpReceiver):
    """Alertmanager answers 400 to such a request, at every pass, so that no message counts as taken."""
    ahead = Incident(AlertKind.QUARANTINE, "lake.db.t", "u", "s", (), 9_000_000, 9_000_000)
    ended = replace(ahead, table="lake.db.u", table_uuid="v", cleared_ms=6000)
    Alertmanager(http.url, {}, 5).send(Messages((ahead,), (ended,)), (ahead,), 6000)
    (sent,) = http.documents
    assert [(a["startsAt"], a["endsAt"]) for a in sent] == [
        ("1970-01-01T00:15:06.000+00:00", "1970-01-01T00:15:06.000+00:00"),
        ("1970-01-01T00:00:06.000+00:00", "1970-01-01T00:00:06.000+00:00"),
    ]


def test_time_beyond_the_last_year_is_sent_as_its_end(http: HttpReceiver):
    far = Incident(AlertKind.QUARANTINE, "lake.db.t", "u", "s", (), 1 << 60, 1 << 60)
    Alertmanager(http.url, {}, 5).send(Messages((far,), ()), (far,), 1 << 60)
    assert http.documents[0][0]["startsAt"] == "9999-12-31T23:59:59.000+00:00"


class Dripping(socketserver.StreamRequestHandler):
    """Answers a byte at a time, each within the timeout of a read."""

    def handle(self) -> None:
        with suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 20:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)


def test_receiver_that_answers_slowly_keeps_no_other_from_its_messages(fleet: Fleet, http: HttpReceiver):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping)
    server.daemon_threads, server.block_on_close = True, False
    fleet.quarantine(on=True)
    with serving(server):
        slow = Webhook(f"http://127.0.0.1:{server.server_address[1]}", {}, 0.5)
        started = time.monotonic()
        report = fleet.alert_cycle({"slow": slow, "ops": Webhook(http.url, {}, 5)}, send_seconds=1.0)
        assert time.monotonic() - started < 5
    (error,) = (report.failures or {}).values()
    assert "TimeoutError: no answer within 1 s" in str(error)
    assert len(http.documents) == 1


def test_pause_mutes_the_table_and_ends_nothing(fleet: Fleet, http: HttpReceiver):
    hook = Webhook(http.url, {}, 5)
    fleet.quarantine(on=True)
    fleet.world.ledger.registry.pause(str(TABLE), "later")
    assert fleet.alert_cycle({"ops": hook}).incidents == ()
    fleet.world.ledger.registry.resume(str(TABLE))
    assert kinds(fleet.alert_cycle({"ops": hook})) == ["quarantine"]
    fleet.world.ledger.registry.pause(str(TABLE), "later")
    fleet.quarantine(on=False)
    assert kinds(fleet.alert_cycle({"ops": hook})) == ["quarantine"]
    fleet.world.ledger.registry.resume(str(TABLE))
    assert kinds(fleet.alert_cycle({"ops": hook})) == []
    assert len(http.documents) == 2


def test_second_process_does_nothing_while_the_first_sends(fleet: Fleet):
    lease = fleet.world.ledger.leases.acquire("alerts", "alerts", "other", 60, 0)
    assert lease is not None
    assert fleet.alert_cycle({}).is_busy
    fleet.world.ledger.leases.release(lease)
    assert not fleet.alert_cycle({}).is_busy


def test_table_that_cannot_be_judged_keeps_its_incident(fleet: Fleet, http: HttpReceiver):
    hook = Webhook(http.url, {}, 5)
    fleet.quarantine(on=True)
    fleet.alert_cycle({"ops": hook})

    def broken(_table: object, _properties: object) -> object:
        raise ValueError("a policy that cannot be read")

    context = changed(fleet.context, policy_for=broken)
    report = run_alert_cycle(context, {"ops": ConfiguredReceiver(frozenset(), lambda: hook)})
    assert kinds(report) == ["quarantine"]
    assert len(http.documents) == 1


def test_test_of_a_receiver_sends_begin_and_end_or_fails_with_its_code(fleet: Fleet, http: HttpReceiver):
    incident = Incident(AlertKind.NOT_OBSERVED, "test", "test", "A test.", (), 1, 1, 1)
    send_test(
        "ops", ConfiguredReceiver(frozenset(), lambda: Webhook(http.url, {}, 5)), incident, fleet.context
    )
    begin, end = http.documents
    assert ([i["cleared_ms"] for i in begin["fired"]], begin["cleared"]) == ([None], [])
    assert (end["fired"], [i["cleared_ms"] for i in end["cleared"]]) == ([], [1])
    http.status = 404
    with pytest.raises(
        IcebergMaintError, match=r"ICM-151 alerts: receiver ops .*Then send the test again\.$"
    ):
        send_test(
            "ops", ConfiguredReceiver(frozenset(), lambda: Webhook(http.url, {}, 5)), incident, fleet.context
        )


def blocked_expiry(fleet: Fleet) -> None:
    """Snapshots that are older than the policy keeps."""
    for _ in range(30):
        fleet.world.append("a", 1)
    fleet.world.clock.ms += 60 * 86_400_000
    assess(TABLE, fleet.context)


class Pinning:
    """The catalog of the fleet. Calls `before` and counts, when it is asked for a table."""

    def __init__(self, fleet: Fleet, before: Callable[[], object] = lambda: None) -> None:
        self._catalog, self._before, self.pins = fleet.world.catalog, before, 0

    def pin(self, table: TableId) -> TableState:
        self.pins += 1
        self._before()
        return self._catalog.pin(table)

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


def test_catalog_that_hangs_delays_no_alert(fleet: Fleet, http: HttpReceiver):
    """The names of retainers come from the catalog. A pass that waited for it would lose its lease and send nothing."""
    fleet.quarantine(on=True)
    blocked_expiry(fleet)
    answers = threading.Event()
    catalog = Pinning(fleet, lambda: answers.wait(30))
    context = changed(fleet.context, catalogs={TABLE.catalog: catalog})
    hook = {"ops": ConfiguredReceiver(frozenset(), lambda: Webhook(http.url, {}, 5))}
    started = time.monotonic()
    try:
        report = run_alert_cycle(context, hook, holder_seconds=0.1)
        again = run_alert_cycle(context, hook, holder_seconds=0.1)
        assert time.monotonic() - started < 10
    finally:
        answers.set()
    assert kinds(report) == ["expiry_blocked", "quarantine"]
    assert (report.sent, again.sent, catalog.pins) == (1, 0, 1)
    summary = http.documents[0]["fired"][0]["summary"]
    assert summary.endswith("What retains it was not read: the catalog took too long.")


def test_paused_table_with_a_blocked_expiry_reads_no_catalog(fleet: Fleet):
    blocked_expiry(fleet)
    fleet.world.ledger.registry.pause(str(TABLE), "later")
    catalog = Pinning(fleet)
    context = changed(fleet.context, catalogs={TABLE.catalog: catalog})
    assert run_alert_cycle(context, {}).incidents == ()
    assert catalog.pins == 0
