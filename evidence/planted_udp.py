"""Bugs planted into the Python part of `udp:` channels: options, addresses, endpoints, sessions."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

EXIT = "tests/exit/test_exit.py"
HANDLES = "tests/kinds/udp/test_udp.py"
STATUS = "tests/kinds/udp/test_network_status.py"
ADDRESSES = "tests/kinds/udp/test_udp_address.py"


def _subscriptions_of_an_endpoint_may_differ() -> None:
    from penstock.kinds.udp import endpoint as udp_endpoint

    udp_endpoint.DECIDED = ()  # type: ignore[assignment]


def _a_call_outdoes_its_uri() -> None:
    from penstock.kinds.udp import options as udp_options

    udp_options.merged = lambda given, written, uri: {**written, **given}


def _small_buffers_are_told_every_time() -> None:
    from penstock.kinds.udp import handle as udp_handle

    class Forgetful(set[Any]):
        def add(self, element: Any) -> None:
            pass

    udp_handle._warned = Forgetful()


def _any_mtu_will_do() -> None:
    from penstock.kinds.udp import options as udp_options

    udp_options.FRAME_ALIGNMENT = 1


def _hosts_are_spelled_as_they_come() -> None:
    from penstock.kinds.udp import address as udp_address

    plain = udp_address.endpoint

    def endpoint(text: str, what: str = "the address") -> Any:
        found = plain(text, what)
        written = text.rpartition(":")[0].strip("[]")
        return udp_address.Endpoint(written, found.port)

    udp_address.endpoint = endpoint


def _a_group_is_no_number() -> None:
    from penstock.kinds.udp.options import UdpOptions

    UdpOptions.flow = property(lambda self: (str(self.flow_control), 0))  # type: ignore[assignment,method-assign]


def _the_end_raises_errors_in_daemon_threads() -> None:
    from penstock._native import core

    core.end_handles = lambda: None


def _a_receiving_machine_has_no_rates() -> None:
    from penstock.channels.network import NetworkStatus

    plain = NetworkStatus.__init__

    def without_arrivals(self: NetworkStatus, sessions: Any, receivers: Any, arrives: bool) -> None:
        plain(self, sessions, receivers, False)

    NetworkStatus.__init__ = without_arrivals  # type: ignore[method-assign]


def _receivers_are_not_shown() -> None:
    from penstock._native import core

    core.udp_receivers = lambda file: []


BUGS: dict[str, Planted] = {
    "a receiving machine has no rates": Planted(
        _a_receiving_machine_has_no_rates, (f"{STATUS}::test_the_receiving_machine_has_rates",)
    ),
    "a publication's receivers are not shown": Planted(
        _receivers_are_not_shown, (f"{STATUS}::test_a_publication_says_what_its_receivers_needed",)
    ),
    "subscriptions of one endpoint may have other options": Planted(
        _subscriptions_of_an_endpoint_may_differ,
        (f"{HANDLES}::test_subscriptions_of_one_endpoint_share_its_options",),
    ),
    "a call may contradict its udp URI": Planted(
        _a_call_outdoes_its_uri, (f"{ADDRESSES}::test_a_call_and_a_uri_may_not_contradict_each_other",)
    ),
    "small buffers are told every time": Planted(
        _small_buffers_are_told_every_time, (f"{HANDLES}::test_smaller_buffers_are_told_once",)
    ),
    "a udp publication takes any mtu": Planted(
        _any_mtu_will_do, (f"{ADDRESSES}::test_a_wrong_option_of_a_publication_is_named",)
    ),
    "one udp channel has several names": Planted(
        _hosts_are_spelled_as_they_come, (f"{ADDRESSES}::test_one_channel_has_one_name",)
    ),
    "the end of a process raises errors in daemon threads": Planted(
        _the_end_raises_errors_in_daemon_threads,
        (f"{EXIT}::test_the_interpreter_ends_with_handles_in_every_state[udp]",),
    ),
    "any flow control will do": Planted(
        _a_group_is_no_number, (f"{ADDRESSES}::test_a_wrong_option_of_a_publication_is_named",)
    ),
}
