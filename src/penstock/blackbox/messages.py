"""A trigger that looks at each message of a channel. Knows one subscription and one condition."""

from __future__ import annotations

import contextlib
import logging
import selectors
from collections.abc import Callable
from typing import Any

from penstock.blackbox import toml_words
from penstock.blackbox.config import Trigger, name_of
from penstock.blackbox.expressions import Condition, MissingField
from penstock.channels.uri.opener import open_handle, parse, subscription_options
from penstock.errors import DecodeError, NotFound, TooSlow

log = logging.getLogger("penstock")

BATCH = 1000  # messages before other descriptors have their turn
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
        self._told: set[str] = set()

    def open(self) -> None:
        """Subscribes, if that is not done yet and the channel can be subscribed to."""
        if self._subscription is not None:
            return
        channel = self._trigger.target
        options: dict[str, Any] = {}
        if "drop_after" in subscription_options(channel) and not self._trigger.block:
            options["drop_after"] = 0.0
        if self._is_of_frames:
            options |= {"conflate": False, "when_slow": "skip"}
        with contextlib.suppress(NotFound):  # a frames channel is made by its publication
            self._subscription = open_handle("subscribe", channel, options)
            self._fd = self._subscription.fileno()
            self._selector.register(self._fd, selectors.EVENT_READ, self.read)

    def close(self) -> None:
        """Ends the subscription."""
        if self._subscription is not None:
            self._selector.unregister(self._fd)
            self._subscription.close()

    def read(self) -> None:
        """Looks at the messages that are there, up to a number. Those that fit are one call of `fire`."""
        count, first, lost = 0, "", self._lost()
        for _ in range(BATCH):
            try:
                message = self._subscription.try_recv()
            except DecodeError as error:
                self._tell(f"a message of {self._trigger.target} could not be decoded: {error}")
                continue
            except TooSlow:
                continue  # what was missed is counted below; nothing is, if it had read all
            if message is None:
                break
            if self._fits(message):
                count += 1
                first = first or f"{self._trigger.when}: {_shown(message)}"
        if (missed := self._lost() - lost) > 0:
            what = "frames" if self._is_of_frames else "bytes"
            log.warning(
                "the trigger %s did not see %d %s of %s", name_of(self._trigger), missed, what, self._trigger.target
            )
        if count:
            self._fire(name_of(self._trigger), first, None, count)

    def _lost(self) -> int:
        return int(self._subscription.lost_messages if self._is_of_frames else self._subscription.lost)

    def _fits(self, message: Any) -> bool:
        try:
            return self._condition(_fields(message))
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
        with message:
            numbers = {name: getattr(message, name) for name in ("sequence", "id", "time_ns", "start_ns", "end_ns")}
            return {**message.meta, **numbers}
    return message.body if hasattr(message, "body") and hasattr(message, "sender") else message


def _shown(message: Any) -> str:
    text = repr(_fields(message)) if not hasattr(message, "array") else "a frame"
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
