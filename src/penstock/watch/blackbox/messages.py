"""A trigger that looks at each message of a channel. Knows one subscription and one condition."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable
from typing import Any

from penstock.channels.storage import files, inspection, reopening
from penstock.channels.uri.opener import open_handle, parse, subscription_options
from penstock.errors import DecodeError, NotFound, PenstockError, TooSlow
from penstock.watch.blackbox import toml_words
from penstock.watch.blackbox.config import Trigger, name_of
from penstock.watch.blackbox.expressions import Condition, MissingField

log = logging.getLogger("penstock")

BATCH = 1000  # messages before other descriptors have their turn
RETRY_SECONDS = 0.9  # of a channel that cannot be joined; the black box looks a second after each event
BATCHES_MAX = 100  # of a channel that was removed
LAST_MAX = 1_000_000  # messages of a ring, which has no beginning
SHOWN = 200  # letters of a message in a note


class MessageWatch:
    """Fires for each message that fits. Unless the trigger blocks, no writer waits for it: what it missed is a warning in the log.

    fire: called with the trigger's name, a note, None and how often.
    """

    def __init__(
        self, trigger: Trigger, selector: selectors.BaseSelector, fire: Callable[[str, str, None, int], None]
    ) -> None:
        assert trigger.when is not None
        self._trigger, self._selector, self._fire = trigger, selector, fire
        self._condition = Condition(trigger.when)
        self._is_of_frames = parse(trigger.target).kind.by_reference
        self._subscription: Any = None
        self._fd = -1
        self._came_late = False
        self._again_at = 0.0
        self._told: set[str] = set()

    def open(self) -> None:
        """Subscribes, if that is not done yet and the channel can be subscribed to. To the one that has the name now: another one may have been
        made in place of that which is open. A channel that came while others were watched is read from its beginning."""
        if self._subscription is not None and self._is_replaced():
            for _ in range(BATCHES_MAX):  # its programs may go on for ever
                if not self.read():
                    break
            self.close()
            self._came_late = True
        if self._subscription is not None or time.monotonic() < self._again_at:
            return
        channel = self._trigger.target
        options: dict[str, Any] = {}
        if "drop_after" in subscription_options(channel) and not self._trigger.block:
            options["drop_after"] = 0.0
        try:
            if self._is_of_frames:
                options |= {"conflate": False, "when_slow": "skip"}
            if self._came_late:
                options |= self._from_its_beginning()
            self._subscription = open_handle("subscribe", channel, options)
        except NotFound:  # a frames channel is made by its publication
            self._came_late = True
            return
        except PenstockError as error:  # opening the file is an event itself, which leads here again
            self._again_at = time.monotonic() + RETRY_SECONDS
            self._tell(f"{channel} is not watched: {error}")
            return
        self._fd = self._subscription.fileno()
        self._selector.register(self._fd, selectors.EVENT_READ, self.read)

    def _from_its_beginning(self) -> dict[str, Any]:
        """The options to read all that the channel still has."""
        channel = parse(self._trigger.target)
        if self._is_of_frames:
            return {"last": inspection.inspect(channel.kind, channel).details["buffers"]}
        return {"last": LAST_MAX} if channel.kind.lossy else {"start": "earliest"}

    def _is_replaced(self) -> bool:
        channel = parse(self._trigger.target)
        opened = reopening.opened_file(channel, self._subscription).file
        return bool(opened) and files.identity(channel) not in (0, opened)

    def close(self) -> None:
        """Ends the subscription."""
        if self._subscription is not None:
            self._selector.unregister(self._fd)
            self._subscription.close()
            self._subscription = None

    def read(self) -> bool:
        """Looks at the messages that are there, up to a number; whether there may be more. Those that fit are one call of `fire`."""
        count, first, lost, is_more = 0, "", self._lost(), False
        for number in range(BATCH):
            is_more = number == BATCH - 1
            try:
                message = self._subscription.try_recv()
            except DecodeError as error:
                self._tell(f"a message of {self._trigger.target} could not be decoded: {error}")
                continue
            except TooSlow:
                continue  # what was missed is counted below; nothing is, if it had read all
            except (
                PenstockError,
                OSError,
            ) as error:  # nothing can be read there; perhaps another one is made in its place
                self._tell(f"{self._trigger.target} is not watched any more: {error}")
                lost = self._lost()
                self.close()
                break
            if message is None:
                break
            try:
                fields = _fields(message)
            except PenstockError as error:
                self._tell(f"a message of {self._trigger.target} could not be read: {error}")
                continue
            if self._fits(fields):
                count += 1
                first = first or f"{self._trigger.when}: {_shown(fields)}"
        if (missed := self._lost() - lost) > 0:
            what = "frames" if self._is_of_frames else "bytes"
            log.warning(
                "the trigger %s did not see %d %s of %s", name_of(self._trigger), missed, what, self._trigger.target
            )
        if count:
            self._fire(name_of(self._trigger), first, None, count)
        return is_more and self._subscription is not None

    def _lost(self) -> int:
        if self._subscription is None:
            return 0
        return int(self._subscription.lost_messages if self._is_of_frames else self._subscription.lost)

    def _fits(self, fields: Any) -> bool:
        try:
            return self._condition(fields)
        except MissingField as error:
            self._tell(f"messages of {self._trigger.target} have no field {error}")
        except Exception as error:  # of the expression: a comparison of a text with a number, a division by 0
            self._tell(
                f"{self._trigger.when!r} cannot be asked of messages of {self._trigger.target}: {toml_words.explain_error(error)}"
            )
        return False

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            log.warning("trigger %s: %s", name_of(self._trigger), text)


def _fields(message: Any) -> Any:
    """What a condition sees: of a frame its numbers and its fields, without the pixels; of a sync queue's message the body."""
    if hasattr(message, "array") and hasattr(message, "meta"):
        with message:  # it ends: nothing else of it can be read later
            numbers = {name: getattr(message, name) for name in ("sequence", "id", "time_ns", "start_ns", "end_ns")}
            return {**message.meta, **numbers, "meta": dict(message.meta)}
    return message.body if hasattr(message, "body") and hasattr(message, "sender") else message


def _shown(fields: Any) -> str:
    text = repr(fields)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
