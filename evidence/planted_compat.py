"""Bugs planted into the stand-ins for other libraries, and into the bounds of benchmarks."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

MSGQ = "tests/peers/test_msgq_promises.py::"
VISION = "tests/peers/test_vision_promises.py::"
PYSYNCQ = "tests/peers/test_pysyncq_promises.py::"
BOUNDED = "tests/peers/test_bounded_runs.py::"
SURFACE = "tests/peers/test_surface.py::test_every_name_is_here_with_its_parameters"


def _events_wait_milliseconds() -> None:
    from penstock.compat import msgq_events

    plain = msgq_events._readable
    msgq_events._readable = lambda fds, timeout: plain(fds, timeout / 1000)


def _receives_wait_seconds() -> None:
    from penstock.compat.msgq import SubSocket

    def set_timeout(self: Any, timeout: int) -> None:
        self._timeout = None if timeout < 0 else timeout

    SubSocket.setTimeout = set_timeout  # type: ignore[method-assign]


def _frames_wait_seconds() -> None:
    from penstock.compat.visionipc import VisionIpcClient

    plain = VisionIpcClient.recv
    VisionIpcClient.recv = lambda self, timeout_ms=100: plain(self, timeout_ms * 1000)  # type: ignore[method-assign]


def _a_new_handle_takes_the_old_events() -> None:
    from penstock.compat.msgq_events import State

    plain = State.make

    def make(self: Any) -> str:
        _, token = self.read()
        if not token:
            return plain(self)
        self.write(False, token)
        return token

    State.make = make  # type: ignore[method-assign]


def _events_are_found_by_forked_children_only() -> None:
    import os

    from penstock.compat import msgq_events

    born = os.getpid()
    plain = msgq_events.text
    msgq_events.text = lambda name: plain(name) if os.getpid() == born and os.getppid() == 0 else f"{born}{plain(name)}"


def _unmade_events_have_descriptor_0() -> None:
    from penstock.compat.msgq_events import Event

    Event.fd = property(lambda self: 0 if self._fifo is None else self._fifo.fd)  # type: ignore[assignment]


def _nobody_is_up_to_date() -> None:
    from penstock.compat.msgq import PubSocket

    PubSocket.all_readers_updated = lambda self: self._connect().all_read  # type: ignore[method-assign]


def _an_endpoint_is_made_by_reading_it() -> None:
    import penstock
    from penstock.compat import msgq

    plain = msgq._open

    def opened(opener: Any, endpoint: Any, segment_size: int, **options: Any) -> Any:
        penstock.subscribe(f"ring:{msgq.scoped(endpoint)}").close()
        return plain(opener, endpoint, segment_size, **options)

    msgq._open = opened


def _a_parameter_has_another_name() -> None:
    from penstock.compat.msgq import PubSocket

    plain = PubSocket.wait_for_readers
    PubSocket.wait_for_readers = (  # type: ignore[method-assign]
        lambda self, timeout=1.0, nap=0.001: plain(self, timeout, nap)  # type: ignore[assignment,misc]
    )


def _a_name_is_missing() -> None:
    from penstock.compat import visionipc

    del visionipc.VisionBuf.idx


def _a_connect_spins_for_ever() -> None:
    from penstock.compat.visionipc import VisionIpcClient

    plain = VisionIpcClient.connect

    def connect(self: Any, blocking: bool) -> bool:
        while not (done := plain(self, blocking)) and blocking:
            pass
        return done

    VisionIpcClient.connect = connect  # type: ignore[method-assign]


def _a_wait_for_the_server_looks_all_the_time() -> None:
    from penstock.compat import visionipc

    visionipc.LOOK_AGAIN = 0.002


def _streams_end_at_3() -> None:
    from penstock.compat import visionipc

    plain = visionipc._streams
    visionipc._streams = lambda name: {stream for stream in plain(name) if stream <= 3}


def _frames_are_arrays() -> None:
    from penstock.compat.visionipc import VisionBuf

    VisionBuf.data = property(lambda self: self.frame.array)  # type: ignore[assignment]


def _a_server_that_came_back_is_the_old_one() -> None:
    from penstock.compat import visionipc

    visionipc.VisionIpcClient.is_connected = (  # type: ignore[method-assign]
        lambda self: self._subscription is not None and self.stream in visionipc._streams(self.name)
    )


def _screens_stay_behind() -> None:
    from penstock.compat.pysyncq import PySyncQ, QSet

    plain = PySyncQ.__getstate__
    PySyncQ.__getstate__ = (  # type: ignore[method-assign]
        lambda self: {**plain(self), "scrnsend": QSet(), "scrntype": QSet()}
    )


def _looking_makes_a_queue() -> None:
    from penstock.compat import pysyncq

    pysyncq._require_queue = lambda name: None


def _any_start_will_do() -> None:
    import multiprocessing

    multiprocessing.get_all_start_methods = (  # type: ignore[assignment]
        lambda: ["fork", "spawn", "forkserver", "thread", "", 1]
    )


def _a_hung_rival_is_waited_for() -> None:
    from evidence import bounded

    plain = bounded._ward
    bounded._ward = lambda answer, folder, limit, *rest: plain(answer, folder, limit * 4, *rest)
    bounded.GRACE = 1000


def _a_dead_rival_is_waited_for() -> None:
    from evidence import bounded

    bounded.all_well = lambda processes: None


def _a_rivals_children_live_on() -> None:
    from evidence import bounded

    bounded._prctl = lambda what, value: None


def _a_rivals_memory_stays() -> None:
    from evidence import bounded

    bounded._held = lambda pid: set()


BUGS: dict[str, Planted] = {
    "an event's timeout is in milliseconds": Planted(
        _events_wait_milliseconds, (f"{MSGQ}test_waiting_for_events_is_in_seconds",)
    ),
    "a receive's timeout is in seconds": Planted(
        _receives_wait_seconds, (f"{MSGQ}test_polling_and_receive_timeouts_are_in_milliseconds",)
    ),
    "a frame's timeout is in seconds": Planted(_frames_wait_seconds, (f"{VISION}test_receiving_waits_milliseconds",)),
    "a new fake handle takes over raised events": Planted(
        _a_new_handle_takes_the_old_events, (f"{MSGQ}test_a_new_handle_begins_with_lowered_events",)
    ),
    "fake events are not found by name": Planted(
        _events_are_found_by_forked_children_only, (f"{MSGQ}test_any_process_finds_the_events_by_name",)
    ),
    "events that nobody made have descriptor 0": Planted(
        _unmade_events_have_descriptor_0, (f"{MSGQ}test_nobodys_events_have_no_descriptor",)
    ),
    "nobody counts as up to date": Planted(
        _nobody_is_up_to_date, (f"{MSGQ}test_readers_are_up_to_date_only_if_there_are_any",)
    ),
    "a parameter has another name than in msgq": Planted(_a_parameter_has_another_name, (SURFACE,)),
    "a name of visionipc is missing": Planted(_a_name_is_missing, (SURFACE,)),
    "a connect to a missing stream spins for ever": Planted(
        _a_connect_spins_for_ever, (f"{VISION}test_connecting_to_a_stream_that_the_server_lacks_ends",)
    ),
    "a connect looks for the server all the time": Planted(
        _a_wait_for_the_server_looks_all_the_time,
        (f"{VISION}test_connecting_waits_for_the_server_and_does_not_spin",),
    ),
    "streams above 3 are left out": Planted(_streams_end_at_3, (f"{VISION}test_streams_are_any_numbers",)),
    "a frame's data is no memoryview": Planted(_frames_are_arrays, (f"{VISION}test_a_frame_is_sent_from_any_bytes",)),
    "a server that came back counts as the old one": Planted(
        _a_server_that_came_back_is_the_old_one, (f"{VISION}test_a_server_that_came_back_is_another_one",)
    ),
    "screening sets stay behind when a queue is pickled": Planted(
        _screens_stay_behind, (f"{PYSYNCQ}test_screens_travel_to_children",)
    ),
    "looking for a queue makes one": Planted(
        _looking_makes_a_queue, (f"{PYSYNCQ}test_looking_for_a_removed_queue_does_not_make_it",)
    ),
    "a bad start method is taken": Planted(_any_start_will_do, (f"{PYSYNCQ}test_arguments_that_make_no_sense",)),
    "a hung rival is waited for": Planted(
        _a_hung_rival_is_waited_for, (f"{BOUNDED}test_a_rival_that_hangs_is_ended_and_named[in sending]",)
    ),
    "a dead rival is waited for": Planted(
        _a_dead_rival_is_waited_for, (f"{BOUNDED}test_a_rival_that_dies_is_not_waited_for[sender]",)
    ),
    "a rival's orphans live on": Planted(
        _a_rivals_children_live_on, (f"{BOUNDED}test_no_child_of_a_rival_outlives_it",)
    ),
    "a rival's shared memory stays": Planted(
        _a_rivals_memory_stays, (f"{BOUNDED}test_no_shared_memory_of_a_rival_outlives_it",)
    ),
}
