"""Bugs planted into the command and the channel folder: each brings back a class that users met."""

from __future__ import annotations

import json
from typing import Any

from evidence.planting import Planted

ANY = "tests/cli/test_any_arguments.py::test_any_call_in_this_process"
ENDS = "tests/cli/test_ends.py"
LOSSLESS = "tests/record/test_record_lossless_frames.py"
SIGNALS = "tests/cli/test_signals.py"
ODD = "tests/cli/test_odd_archives.py"
DECODING = "tests/columns/test_decoding.py"


def _text_is_read_as_markup() -> None:
    from rich.text import Text

    from penstock.cli.terminal import output

    output._text = lambda *parts: Text.from_markup(  # type: ignore[assignment]
        "".join(part if isinstance(part, str) else part[0] for part in parts), emoji=True
    )


def _an_uncaught_value_error() -> None:
    from penstock.cli import arguments

    arguments.start = lambda text: text if text in ("newest", "earliest") else int(text)


def _nan_in_json() -> None:
    from penstock.cli.terminal import output, plain

    plain._number = lambda value: value
    output.as_json = lambda value: json.dumps(plain.plain(value))


def _one_value_is_no_json() -> None:
    from penstock.cli.terminal import plain

    plain._special = lambda value: value


def _one_strange_file_hides_all_channels() -> None:
    from penstock.channels.storage import discovery as front
    from penstock.channels.storage import files, inspection
    from penstock.channels.uri.channel import Channel

    def survey(patterns: Any = "*") -> Any:
        names, strange = files.listing()
        found = [Channel(channel.kind, channel.name) for channel in names]
        return [inspection.inspect(channel.kind, channel) for channel in found], strange

    front.survey = survey


def _a_full_output_is_no_error() -> None:
    from penstock.cli.terminal import output

    plain = output._Guarded.__init__
    output._Guarded.__init__ = lambda self, stream, drops: plain(self, stream, True)  # type: ignore[method-assign]


def _a_signal_ends_without_sealing() -> None:
    import contextlib

    from penstock.cli import ending

    ending._handle_signals = lambda numbers, handler: contextlib.nullcontext()  # type: ignore[assignment]


def _a_handler_takes_a_lock() -> None:
    import contextlib
    import threading

    from penstock.cli import ending

    @contextlib.contextmanager
    def noted() -> Any:
        came, number = threading.Event(), 0

        def note(which: int, frame: Any) -> None:
            nonlocal number
            if came.is_set():
                ending._raise(which, frame)
            number = which
            came.set()

        def wait(seconds: float) -> int:
            came.wait(seconds)
            return number

        with ending._handle_signals(ending.ENDING, note):
            yield wait

    ending.defer_end = noted


def _the_command_leaves_pixels_out() -> None:
    from penstock.record.write.opener import WriterOpener

    plain = WriterOpener.open
    WriterOpener.open = lambda self, *given, **named: plain(self, *given[:5], False, *given[6:], **named)  # type: ignore[method-assign]


def _errors_of_several_lines() -> None:
    from penstock.cli import ending
    from penstock.cli.terminal import output

    output.printable = lambda text: text
    ending.reason = lambda error: f"{type(error).__name__}\n{error}"


def _chmod_on_any_folder() -> None:
    from penstock.channels.storage import files

    files._holds_channels = lambda fd: True


def _a_damaged_recording_is_only_logged() -> None:
    from penstock.record.read.planning.plan import ReadPlanner
    from penstock.tables import pipeline

    pipeline.ReadPlanner = lambda archive, **_: ReadPlanner(archive)


def _a_decoders_own_error_gets_out() -> None:
    from penstock.codecs import Codec

    Codec.decode = lambda self, data: self.parse(data)  # type: ignore[method-assign]


def _an_iterator_ends_at_what_does_not_decode() -> None:
    from penstock.errors import DecodeError
    from penstock.record.read import replay

    def go_on(self: Any) -> Any:
        one = next(self._found)
        if isinstance(one, DecodeError):
            self._found.close()
            raise one
        return one

    replay.PassingOver.__next__ = go_on  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "the pipeline leaves a damaged recording out and says all is well": Planted(
        _a_damaged_recording_is_only_logged,
        (f"{ODD}::test_a_damaged_recording_fails_the_pipeline_after_all_others",),
    ),
    "a codec raises its library's own errors": Planted(
        _a_decoders_own_error_gets_out, (f"{DECODING}::test_a_codec_raises_this_librarys_error",)
    ),
    "a replay ends at a message that does not decode": Planted(
        _an_iterator_ends_at_what_does_not_decode,
        (f"{DECODING}::test_a_recording_continues_behind_an_undecodable_message[replay]",),
    ),
    "the command reads markup and emoji out of text": Planted(
        _text_is_read_as_markup, (f"{ENDS}::test_a_channel_is_not_an_emoji",)
    ),
    "the command lets a ValueError out": Planted(
        _an_uncaught_value_error, (f"{ENDS}::test_an_impossible_command_is_one_line",)
    ),
    "the command prints NaN as JSON": Planted(
        _nan_in_json, (f"{ENDS}::test_messages_that_are_no_json_are_printed_as_json",)
    ),
    "the command cannot print a date as JSON": Planted(
        _one_value_is_no_json, (f"{ENDS}::test_messages_that_are_no_json_are_printed_as_json",)
    ),
    "one strange file hides all channels": Planted(
        _one_strange_file_hides_all_channels, (f"{ENDS}::test_ls_and_doctor_name_a_strange_file",)
    ),
    "the command does not notice a full output": Planted(
        _a_full_output_is_no_error, (f"{ENDS}::test_a_full_device_is_one_line",)
    ),
    "the command's errors are several lines": Planted(_errors_of_several_lines, (ANY,)),
    "SIGTERM ends a recording without its seal": Planted(
        _a_signal_ends_without_sealing, (f"{ENDS}::test_a_signal_seals_the_recording[TERM]",)
    ),
    "a signal's handler takes a lock": Planted(_a_handler_takes_a_lock, (f"{SIGNALS}::test_a_handler_takes_no_lock",)),
    "a recording leaves the pixels out": Planted(
        _the_command_leaves_pixels_out, (f"{LOSSLESS}::test_the_command_records_frames",)
    ),
    "advice to close any folder to others": Planted(
        _chmod_on_any_folder, (f"{ENDS}::test_no_advice_to_close_a_folder_that_others_need[/tmp]",)
    ),
}
