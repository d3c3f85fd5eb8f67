"""Bugs planted into frames that vary, and into recordings of encoded frames."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

FRAMES = "tests/kinds/test_frames_that_vary.py"
ENCODED, PICTURES = "tests/record/test_record_encoded_frames.py", "tests/export/test_mcap_pictures.py"


def _any_shape_is_sent() -> None:
    from penstock.codecs.frames import FrameFormat

    FrameFormat.holds = lambda self, shape: True  # type: ignore[method-assign]


def _sizes_are_not_checked() -> None:
    from penstock.codecs.frames import FrameFormat

    def own_shape(self: Any, sizes: Any, number: int, length: int) -> Any:
        return self.shape if sizes is None else tuple(sizes), self.dtypes[number % len(self.dtypes)]

    FrameFormat.own_shape = own_shape  # type: ignore[method-assign]


def _a_header_is_the_last_one() -> None:
    from penstock.kinds.frames import frame

    before, seen = frame._one_record, []

    def one_record(header: Any, dtype: Any) -> bytes:
        seen.append(before(header, dtype))
        return seen[-2] if len(seen) > 1 else seen[0]

    frame._one_record = one_record


def _the_fastest_encoder_is_first() -> None:
    from penstock.record.write.encoding import EncodingTap

    before = EncodingTap.next_encoded

    def next_encoded(self: Any, *, wait: bool = False) -> Any:
        for at, job in enumerate(self._jobs):
            if job.message.done():
                self._jobs.rotate(-at)
                break
        return before(self, wait=wait)

    EncodingTap.next_encoded = next_encoded  # type: ignore[method-assign]


def _lost_frames_are_not_counted() -> None:
    from penstock.record.write.encoding import EncodingWriter

    EncodingWriter._note_lost = lambda self, frames: None  # type: ignore[method-assign]


def _the_room_has_no_end() -> None:
    from penstock.record.write.encoding import EncodingTap

    EncodingTap.is_full = property(lambda self: False)  # type: ignore[assignment,method-assign]


def _a_publication_waits_for_encoders() -> None:
    from penstock.record.write.encoding import EncodingTap

    before = EncodingTap.take

    def take(self: Any) -> int:
        taken = before(self)
        for job in self._jobs:
            job.message.result()
        return taken

    EncodingTap.take = take  # type: ignore[method-assign]


def _encoders_that_fail_lose_frames() -> None:
    from penstock.record.write.encoding import EncodingTap

    EncodingTap._run = lambda self, message: self._encode(self._form, message, self._encoding)  # type: ignore[method-assign]


def _a_stop_forgets_frames() -> None:
    from penstock.record.write.encoding import EncodingTap, EncodingWriter
    from penstock.record.write.writer import RecordingWriter

    EncodingTap.has_jobs = property(lambda self: False)  # type: ignore[assignment,method-assign]
    EncodingWriter.drain = lambda self: None  # type: ignore[method-assign]
    EncodingWriter.stop_reading = RecordingWriter.stop_reading  # type: ignore[method-assign]


def _sizes_of_pictures_are_not_checked() -> None:
    from penstock.codecs import pixels

    def unpicture(number: int, data: Any, shape: Any, dtype: Any) -> Any:
        import io

        import numpy as np
        from PIL import Image

        found = np.zeros(int(np.prod(shape)), dtype)
        array = np.asarray(Image.open(io.BytesIO(data))).reshape(-1)[: found.size]
        found[: array.size] = array
        return found.view("u1").data

    pixels._unpicture = unpicture


def _pictures_are_encoded_again() -> None:
    from penstock.export import mcap_images

    before = mcap_images.wrap

    def wrap(stored: Any, number: int, time_ns: int, frame_id: str) -> bytes:
        import io

        from PIL import Image

        made = io.BytesIO()
        Image.open(io.BytesIO(stored)).save(made, "PNG" if number == 2 else "JPEG")
        return before(made.getvalue(), number, time_ns, frame_id)

    mcap_images.wrap = wrap


def _a_header_of_any_length_makes_a_channel() -> None:
    from penstock.codecs.frames import FrameFormat

    FrameFormat.fields_bytes = 0  # type: ignore[assignment, method-assign]


BUGS: dict[str, Planted] = {
    "a header that never fits makes a channel": Planted(
        _a_header_of_any_length_makes_a_channel, (f"{FRAMES}::test_a_header_that_never_fits_makes_no_channel",)
    ),
    "a frame above the largest shape is sent": Planted(
        _any_shape_is_sent, (f"{FRAMES}::test_a_frame_above_the_largest_shape_is_refused",)
    ),
    "the sizes of a frame are not checked": Planted(
        _sizes_are_not_checked, (f"{FRAMES}::test_a_note_that_contradicts_itself_is_no_frame",)
    ),
    "a frame has the header of the one before": Planted(
        _a_header_is_the_last_one, (f"{FRAMES}::test_a_header_goes_with_each_frame",)
    ),
    "the frame that is encoded first is recorded first": Planted(
        _the_fastest_encoder_is_first, (f"{ENCODED}::test_frames_are_in_order_whichever_is_encoded_first",)
    ),
    "frames without room for encoding are not counted": Planted(
        _lost_frames_are_not_counted, (f"{ENCODED}::test_frames_without_room_are_lost_and_counted",)
    ),
    "frames that wait for an encoder have no bound": Planted(
        _the_room_has_no_end, (f"{ENCODED}::test_a_publication_that_waits_waits_for_an_encoder",)
    ),
    "the recorder waits for its encoders": Planted(
        _a_publication_waits_for_encoders, (f"{ENCODED}::test_a_turn_waits_for_no_encoder",)
    ),
    "an encoder that fails ends the recording": Planted(
        _encoders_that_fail_lose_frames, (f"{ENCODED}::test_a_frame_that_cannot_be_encoded_is_kept_raw",)
    ),
    "a recorder that stops forgets the frames that are being encoded": Planted(
        _a_stop_forgets_frames, (f"{ENCODED}::test_lossless_frames_are_replayed_as_they_were",)
    ),
    "a picture of another size is taken for a frame": Planted(
        _sizes_of_pictures_are_not_checked, (f"{ENCODED}::test_a_broken_picture_is_told_in_one_line",)
    ),
    "pictures are encoded again for MCAP": Planted(
        _pictures_are_encoded_again, (f"{PICTURES}::test_pictures_are_exported_as_they_are_stored",)
    ),
}
