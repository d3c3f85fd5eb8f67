"""The pace of `Archive.play`: pauses, steps, rates and loops while it plays, and the recorded time on a channel of its own."""

import pytest

import penstock
from penstock.record import Pace
from penstock.record.read.pace import TURN_SECONDS
from penstock.util.clock import SystemClock

SECOND = 10**9
BEGAN = 1_769_860_800 * SECOND


class Slept(SystemClock):
    """A clock that only passes when somebody sleeps. at: seconds → called when so much has passed."""

    def __init__(self, at=()):
        self.now, self._at = 0.0, sorted(at, key=lambda one: one[0])

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        while self._at and self._at[0][0] <= self.now:
            self._at.pop(0)[1]()


@pytest.fixture
def drive(archive):
    """Ten messages, a second apart."""
    archive.append("log:n", [b"%d" % n for n in range(10)], times_ns=[BEGAN + n * SECOND for n in range(10)])
    return archive


def play(drive, at=(), **options):
    """What is played, and the seconds that pass. at: (seconds, a function)."""
    clock = Slept(at)
    heard = penstock.subscribe("log:n")
    played = penstock.Archive(drive.path, clock=clock).play(**options)
    with heard:
        got = heard.poll(1000)
    assert played.total == len(got)
    return [int(one) for one in got], clock.now


def test_a_pause_keeps_its_place(drive):
    """The rhythm goes on behind it as before."""
    pace = Pace()
    got, passed = play(drive, [(2.5, pace.pause), (7.5, pace.resume)], pace=pace)
    assert got == list(range(10))
    assert passed == pytest.approx(14, abs=3 * TURN_SECONDS)


def test_a_step_in_a_pause_plays_that_many(drive):
    pace = Pace(paused=True)
    seen = []
    heard = penstock.subscribe("log:n")

    def look():
        seen.append(len(heard.poll(100)))

    at = [(1, look), (1.1, lambda: pace.step(3)), (2, look), (2.1, pace.step), (3, look), (3.1, pace.stop)]
    got, _ = play(drive, at, pace=pace)
    heard.close()
    assert seen == [0, 3, 1]
    assert got == [0, 1, 2, 3]


def test_steps_that_were_not_played_end_with_the_pause(drive):
    """A step outside of a pause plays nothing more."""
    pace = Pace()
    got, passed = play(drive, [(1.5, pace.step), (2.5, pace.pause), (4.5, pace.stop)], pace=pace)
    assert got == [0, 1, 2, 3]
    assert passed == pytest.approx(4.5, abs=2 * TURN_SECONDS)


def test_a_rate_may_change_while_it_plays(drive):
    pace = Pace(1.0)

    def faster():
        pace.rate = 4.0

    got, passed = play(drive, [(5, faster)], pace=pace)
    assert got == list(range(10))
    assert passed == pytest.approx(6, abs=3 * TURN_SECONDS)


def test_a_loop_begins_again_until_it_is_stopped(drive):
    pace = Pace()
    got, passed = play(drive, [(22.5, pace.stop)], pace=pace, loop=True)
    assert got == [*range(10), *range(10), 0, 1, 2, 3, 4]
    assert passed == pytest.approx(22.5, abs=2 * TURN_SECONDS)


def test_a_loop_over_nothing_ends(drive):
    assert play(drive, since=BEGAN + 20 * SECOND, loop=True) == ([], 0.0)


def test_a_start_is_behind_the_first_message(drive):
    assert play(drive, start=6.5) == ([7, 8, 9], pytest.approx(2))
    assert play(drive, start=1, since=BEGAN + 5 * SECOND, speed=None) == ([6, 7, 8, 9], 0)
    assert play(drive, start=1e12, speed=None) == ([], 0)


def test_the_clock_tells_the_recorded_time(drive):
    """It never steps back, stands in a pause, never runs ahead of the messages, and is there before the first one."""
    pace = Pace(2.0)
    with penstock.subscribe("log:clock") as clock:
        play(drive, [(1, pace.pause), (3, pace.resume)], pace=pace, clock="log:clock")
        times = [one["clock"]["sec"] * SECOND + one["clock"]["nanosec"] for one in clock.poll(10_000)]
    assert times == sorted(times)
    assert times[0] == BEGAN
    assert BEGAN + 8.8 * SECOND < times[-1] <= BEGAN + 9 * SECOND
    still = max(times.count(one) for one in set(times))
    assert still == pytest.approx(2 / TURN_SECONDS, abs=3)
    assert len(times) == pytest.approx(6.5 / TURN_SECONDS, abs=10)


def test_turns_are_the_players_own(drive):
    turns = []

    def turn(pace):
        turns.append(pace)
        if len(turns) == 20:
            pace.stop()

    pace = Pace(turn=turn)
    got, _ = play(drive, pace=pace)
    assert got == [0]
    assert set(turns) == {pace}


WRONG = [
    ({"pace": Pace(), "speed": 2.0}, "speed and pace"),
    ({"pace": 1.0}, "pace is 1.0"),
    ({"start": -1}, "start is -1"),
    ({"start": float("nan")}, "start is nan"),
    ({"loop": 1}, "loop is 1"),
    ({"clock": "log:n"}, "clock is log:n"),
    ({"clock": "pipe:c"}, "clock is pipe:c"),
    ({"clock": "frames:c"}, "clock is frames:c"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_options_are_refused(drive, options, said):
    with pytest.raises(penstock.Invalid, match=said):
        drive.play(**options)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), True, "2"])
def test_a_rate_that_is_none_is_refused(rate):
    pace = Pace(3.0)
    with pytest.raises(penstock.Invalid, match="rate is"):
        pace.rate = rate
    assert pace.rate == 3.0
