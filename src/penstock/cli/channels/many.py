"""`penstock sub` on several channels at once, and on patterns of them. Knows subscriptions; opens channels that appear later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import penstock
from penstock.channels.storage.discovery import ChannelDiscovery
from penstock.channels.uri.opener import subscription_options, takes_messages
from penstock.channels.uri.wildcards import is_pattern
from penstock.cli.channels import log_lines
from penstock.cli.channels.names import is_awaited
from penstock.cli.ending import reason
from penstock.cli.terminal import output
from penstock.cli.terminal.fitting import shortened

LOSS_SECONDS = 1.0  # between two warnings of losses
LOOK_SECONDS = 0.2  # between checks for new channels, and whether the output is still read
RATES = 32  # columns of a line's numbers
BATCH = 100  # messages of one channel before the next has its turn


def options(channel: str, block: bool) -> dict[str, Any]:
    """The options of a subscription that makes no writer wait, unless `block`: `Unsupported` where that is not a reader's choice."""
    known = subscription_options(channel)
    if not block:
        return {"drop_after": 0.0} if "drop_after" in known else {}
    if "drop_after" not in known and "when_slow" not in known:
        raise penstock.Unsupported(
            f"{channel}: --block has no effect here: its readers do not choose whether writers wait"
        )
    return {} if "drop_after" in known else {"when_slow": "wait"}


class Losses:
    """Tells how much of its channel a subscription has missed, as far as that raises no error: at most once in a while."""

    def __init__(self, subscription: penstock.types.Subscription) -> None:
        self._subscription, self._next = subscription, 0.0
        self._told = self._now

    @property
    def _now(self) -> tuple[int, int]:
        one = self._subscription
        return known(lambda: one.lost) or 0, known(lambda: one.lost_messages) or 0

    def warn(self, error: Exception) -> None:
        """Tells an error. `TooSlow` says itself what was lost with it."""
        output.note(f"warning: {reason(error)}")
        if isinstance(error, penstock.TooSlow):
            self._told = self._now

    def look(self, *, last: bool = False) -> None:
        """Between messages. last: there is no later call."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next, before = now + LOSS_SECONDS, self._told
        self._told = size, messages = self._now
        if size > before[0] or messages > before[1]:
            count = f"{messages - before[1]:,} messages" if messages > before[1] else output.size(size - before[0])
            output.note(f"warning: {self._subscription.channel}: {count} lost")


def about(subscription: penstock.types.Subscription) -> dict[str, Any]:
    """The fields that JSON has beside the message received last."""
    last = subscription.last
    fields: dict[str, Any] = {"position": last.position, "time_ns": last.time_ns, "session": last.session}
    if last.sender:
        fields |= {"sender": last.sender, "type": last.type}
    return fields


def payload_bytes(batch: Any) -> int:
    """The bytes of a batch's messages."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0)


class _Several:
    """Subscriptions to named channels, and to those that match patterns, as they appear.

    A channel whose messages go to one reader each is read only if it is named.
    """

    def __init__(self, channels: Sequence[str], begin: dict[str, Any], block: bool) -> None:
        self._block, self._begin = block, begin
        self._named = [channel for channel in channels if not is_pattern(channel) and not is_awaited(channel)]
        self._discovery = ChannelDiscovery([channel for channel in channels if channel not in self._named])
        self.losses: dict[penstock.types.Subscription, Losses] = {}  # of those that are open
        try:
            for channel in self._named:
                self._add(channel, begin)
            self.discover(first=True)
        except BaseException:
            self.close()
            raise

    def _add(self, channel: str, begin: dict[str, Any]) -> None:
        subscription = penstock.subscribe(channel, **begin, **options(channel, self._block))
        self.losses[subscription] = Losses(subscription)

    def discover(self, *, first: bool = False) -> None:
        """Subscribes to new channels. One that appears later is read from its first message on, if its kind keeps messages."""
        for channel in self._discovery.new():
            if (first and channel in self._named) or takes_messages(channel):
                continue
            try:
                self._join(channel, first)
            except penstock.PenstockError as error:
                output.note(f"warning: {channel} is not read: {reason(error)}")

    def _join(self, channel: str, first: bool) -> None:
        try:
            self._add(channel, self._begin if first else {"start": "earliest"})
        except penstock.Unsupported as error:
            if first:
                output.note(f"warning: {reason(error)}; it is read from its newest message on")
            self._add(channel, {"start": "newest"})

    def ready(self, seconds: float) -> list[penstock.types.Subscription]:
        """Those that have messages, after at most `seconds`."""
        if self.losses:
            with contextlib.suppress(penstock.TooSlow):  # it is in `lost`
                return penstock.wait(list(self.losses), seconds)
            return list(self.losses)
        time.sleep(seconds)
        return []

    def close(self) -> None:
        """Closes them, and says what they have lost."""
        for subscription, losses in self.losses.items():
            losses.look(last=True)
            subscription.close()


def sub(
    channels: Sequence[str],
    begin: dict[str, Any],
    limit: int | None,
    timeout: float | None,
    block: bool,
    hz: bool,
    json: bool,
    logs: bool,
) -> None:
    """Prints the messages of several channels, or counts them once a second. Ends when nothing arrived for `timeout` seconds."""
    several = _Several(channels, begin, block)
    try:
        if hz:
            _count(several, limit, timeout, json)
        else:
            _print(several, limit, timeout, log_lines.say if logs else _say_json if json else _say)
    except TimeoutError:
        output.note(f"{', '.join(channels)}: nothing arrived for {timeout:g} seconds")
    finally:
        several.close()


def _say(subscription: penstock.types.Subscription, message: Any) -> None:
    print(f"{subscription.channel}  {output.message(message)}", flush=True)


def _say_json(subscription: penstock.types.Subscription, message: Any) -> None:
    print(output.as_json({"channel": subscription.channel, **about(subscription), "data": message}), flush=True)


def _print(
    several: _Several,
    limit: int | None,
    timeout: float | None,
    say: Callable[[penstock.types.Subscription, Any], None],
) -> None:
    count, quiet = 0, time.monotonic()
    while limit is None or count < limit:
        came = 0
        for subscription in several.ready(_patience(quiet, timeout)):
            most = BATCH if limit is None else min(BATCH, limit - count)
            came += (printed := _print_from(subscription, several.losses[subscription], most, say))
            count += printed
        for losses in several.losses.values():
            losses.look()
        several.discover()
        output.check_reader()
        quiet = _quiet(came, quiet, timeout)


def _patience(quiet: float, timeout: float | None) -> float:
    return LOOK_SECONDS if timeout is None else max(0.0, min(LOOK_SECONDS, quiet + timeout - time.monotonic()))


def _quiet(came: int, quiet: float, timeout: float | None) -> float:
    """Since when nothing has arrived. TimeoutError if that is too long ago."""
    now = time.monotonic()
    if came:
        return now
    if timeout is not None and now - quiet >= timeout:
        raise TimeoutError
    return quiet


def _print_from(
    subscription: penstock.types.Subscription,
    losses: Losses,
    most: int,
    say: Callable[[penstock.types.Subscription, Any], None],
) -> int:
    """Prints the available messages of a subscription, at most `most`; returns their number."""
    count = 0
    while count < most:
        try:
            message = subscription.try_recv()
        except (penstock.DecodeError, penstock.TooSlow) as error:
            losses.warn(error)
            continue
        if message is None:
            break
        count += 1
        say(subscription, message)
    return count


def _count(several: _Several, limit: int | None, timeout: float | None, json: bool) -> None:
    total, quiet = 0, time.monotonic()
    while limit is None or total < limit:
        begun = time.monotonic()
        counts = dict.fromkeys((one.channel for one in several.losses), (0, 0))
        while time.monotonic() < begun + 1 and (limit is None or total < limit):
            for subscription in several.ready(0.05):
                try:
                    batch = subscription.poll_arrow()
                except penstock.TooSlow:  # it is in `lost`
                    continue
                messages, size = counts.get(subscription.channel, (0, 0))
                counts[subscription.channel] = messages + batch.num_rows, size + payload_bytes(batch)
                total += batch.num_rows
            several.discover()
        passed = time.monotonic() - begun
        names = shortened(list(counts), max(8, output.width() - RATES))
        widest = max(map(len, names.values()), default=0)
        for channel, (messages, size) in sorted(counts.items()):
            if json:
                row = {"channel": channel, "messages_per_s": messages / passed, "bytes_per_s": size / passed}
                print(output.as_json(row), flush=True)
            else:
                output.say(
                    f"{names[channel]:{widest}}  {messages / passed:>7,.0f} messages/s  {output.size(size / passed):>8}/s"
                )
        quiet = _quiet(sum(messages for messages, _ in counts.values()), quiet, timeout)
        output.check_reader()


def known(ask: Callable[[], int | None]) -> int | None:
    """A count, or None where the kind does not count."""
    try:
        return ask()
    except penstock.Unsupported:
        return None
