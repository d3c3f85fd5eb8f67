"""Metrics for Prometheus: read by the client's own parser, named after its conventions, served on the loopback only."""

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from people import until
from ports import free_port

import penstock

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from penstock.watch import metrics

ROOT = Path(__file__).parents[2]


MEASURES = (*metrics.CHANNEL, *metrics.MEMBER, *metrics.NETWORK, *metrics.SESSION, *metrics.RECEIVER)


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text, name, **labels):
    (found,) = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


def test_counters_are_the_channels():
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub, penstock.publish("ring:b") as ring:
        for _ in range(3):
            pub.send(b"12345")
        sub.recv()
        ring.send(b"x")
        text = metrics.text()
        status = penstock.inspect("log:a")
        assert value(text, "penstock_channel_sent_messages_total", channel="log:a", kind="log") == 3
        assert value(text, "penstock_channel_sent_bytes_total", channel="log:a") == 15
        assert value(text, "penstock_channel_sent_messages_total", channel="ring:b", kind="ring") == 1
        assert value(text, "penstock_channel_lag_bytes", channel="log:a") == status.lag
        assert value(text, "penstock_channel_readers", channel="log:a") == 1
        assert value(text, "penstock_channel_memory_bytes", channel="log:a") == status.size
        assert value(text, "penstock_channel_created_timestamp_seconds", channel="log:a") == status.created_ns / 1e9
        assert value(text, "penstock_channel_info", channel="log:a", codec="bytes", state="ready") == 1
        assert value(text, "penstock_info", version=penstock.__version__) == 1
        assert value(text, "penstock_shared_memory_free_bytes") > 0


def test_a_kind_that_counts_only_bytes_has_no_message_series():
    with penstock.publish("log:a"), penstock.publish("ring:b"):
        lost = families(metrics.text())["penstock_channel_lost_messages"]
        assert [sample.labels["channel"] for sample in lost.samples] == ["ring:b"]


def test_no_channel_is_no_series():
    assert families(metrics.text())["penstock_channel_lag_bytes"].samples == []


def test_members_are_named_when_they_are_asked_for():
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub:
        pub.send(b"x")
        sub.recv()
        assert "penstock_member" not in metrics.text()
        text = metrics.text(members=True)
        assert value(text, "penstock_member_messages_total", channel="log:a", role="publication") == 1


def test_names_follow_prometheus_conventions():
    """The rules of promtool: help for each, counters end in _total, units are base units and stand last."""
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with (
        penstock.publish("log:a"),
        penstock.subscribe("log:a"),
        penstock.subscribe(uri),
        penstock.publish(uri) as pub,
    ):
        pub.wait_for_readers(1, timeout=60)
        for family in text_string_to_metric_families(metrics.text(members=True)):
            assert family.documentation
            assert re.fullmatch("penstock(_[a-z]+)*", family.name), family.name
            assert not re.search("_(ms|us|ns|kb|mb|count|sum|bucket|total)$", family.name), family.name
            for sample in family.samples:
                endings = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
                assert sample.name.endswith(endings.get(family.type, "")), sample.name
                own = {"le"} if sample.name.endswith("_bucket") else set()
                assert set(sample.labels) & {"job", "instance", "le", "quantile"} == own


def test_the_page_and_the_dashboard_name_what_there_is():
    penstock.counter("a").add()
    with penstock.publish("log:a"), penstock.subscribe("log:a"):
        there = {
            sample.name
            for family in text_string_to_metric_families(metrics.text(members=True))
            for sample in family.samples
        } | {measure.name + "_total" * measure.counts for measure in MEASURES}
    page = set(re.findall(r"`(penstock_\w+)`", (ROOT / "docs" / "watch" / "metrics.md").read_text()))
    assert page == there
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set(re.findall(r"penstock_\w+", " ".join(asked)))
    assert len(named) > 10
    assert named <= there


def test_a_network_has_series_for_each_session_and_receiver():
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub, penstock.publish("log:a"):
        pub.wait_for_readers(1, timeout=60)
        pub.send(b"x", timeout=60)
        sub.recv(timeout=60)
        # The receiver has told how long one takes.
        until(lambda: any(one.round_trip_ns for one in pub.statistics().network.receivers), "a round trip")
        text = metrics.text()
        assert value(text, "penstock_network_sent_naks_total") == 0  # of this channel alone
        assert value(text, "penstock_network_received_datagrams_total", channel=uri) > 0
        assert 0 < value(text, "penstock_network_round_trip_seconds", channel=uri) < 60
        assert "penstock_session" not in text
        assert "penstock_receiver" not in text
        text, (session,) = metrics.text(members=True), sub.statistics().network.sessions
        own = {"channel": uri, "session": str(pub.session)}
        assert value(text, "penstock_session_open", source=session.source, **own) == 1
        assert value(text, "penstock_session_window_bytes", **own) == session.window
        assert value(text, "penstock_session_received_datagrams_total", **own) > 0
        address = uri.split("/")[2]
        assert value(text, "penstock_receiver_readers", address=address, **own) == 1
        assert 0 < value(text, "penstock_receiver_round_trip_seconds", **own) < 60


def get(url, path="/metrics", host=None):
    place = url.split("/")[2]
    connection = http.client.HTTPConnection(place, timeout=60)
    connection.request("GET", path, headers={"Host": host or place})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_it_is_served_on_the_loopback_and_to_no_other_host():
    with penstock.publish("log:a") as pub, metrics.Server() as server:
        pub.send(b"x")
        status, text = get(server.url)
        assert status == 200
        assert value(text, "penstock_channel_sent_messages_total", channel="log:a") == 1
        assert server.url.startswith("http://127.0.0.1:")
        assert get(server.url, host="localhost:1")[0] == 200
        assert get(server.url, host="evil.example")[0] == 403
        assert get(server.url, host="127.0.0.1.evil.example:80")[0] == 403
        assert get(server.url, "/etc")[0] == 404
        with pytest.raises(penstock.SystemFailure, match="cannot serve on port"):
            metrics.Server(int(server.url.split(":")[2].split("/")[0]))


@pytest.mark.parametrize("members", [False, True])
def test_each_series_can_be_asked_for_by_its_name(members):
    with penstock.publish("log:a"), penstock.subscribe("log:a"), metrics.Server(members=members) as server:

        def names(path):
            return {line.split("{")[0].split()[0] for line in get(server.url, path)[1].splitlines() if line[0] != "#"}

        there = names("/metrics")
        assert len(there) > 10
        for name in there:
            assert names(f"/metrics?name[]={name}") == {name}


def test_the_command_serves_until_it_is_interrupted():
    with penstock.publish("log:a") as pub:
        pub.send(b"x")
        once = subprocess.run(
            [sys.executable, "-m", "penstock", "metrics", "--once"], capture_output=True, text=True, check=True
        )
        assert value(once.stdout, "penstock_channel_sent_messages_total", channel="log:a") == 1
        serving = subprocess.Popen(
            [sys.executable, "-u", "-m", "penstock", "metrics", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        try:
            url = serving.stdout.readline().split()[1]
            assert value(get(url)[1], "penstock_channel_sent_messages_total", channel="log:a") == 1
            serving.send_signal(signal.SIGINT)
            assert serving.wait(60) == 0
        finally:
            serving.kill()
            serving.wait()
            serving.stdout.close()
