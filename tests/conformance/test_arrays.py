"""Messages that are arrays and texts."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from conformance.subjects import PATIENCE

import penstock

SHAPE = (3, 4)
BASE = np.arange(48, dtype="u1").reshape(6, 8)


class Tensor:
    """As torch's: its `__array__` takes no `copy`, and refuses where gradients are needed."""

    def __init__(self, array: Any, requires_grad: bool = False) -> None:
        self.array, self.requires_grad = array, requires_grad

    def __array__(self, dtype: Any = None) -> Any:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self.array


def of_shape(place: Any, dtype: str, codec: bool = False) -> tuple[Any, Any]:
    """A publication and a subscription for arrays of SHAPE: a channel of bytes, or with `codec` of arrays. Frames are always arrays."""
    options: dict[str, Any] = {}
    if place.subject.kind == "frames" or codec:
        options["codec"] = penstock.array(dtype, SHAPE)
    pub = place.publish(**options)
    sub = place.subscribe(**options if place.subject.kind == "zmq" else {})
    pub.wait_for_readers(1, timeout=PATIENCE)
    return pub, sub


def received(place: Any, sub: Any) -> Any:
    """The next message: bytes, or an array."""
    found = sub.recv(timeout=PATIENCE)
    return found.copy() if place.subject.kind == "frames" else place.body(found)


def orders() -> dict[str, Any]:
    """Arrays of SHAPE and u1 in every order of memory."""
    fortran = np.asfortranarray(BASE[:3, :4])
    read_only = BASE[:3, :4].copy()
    read_only.flags.writeable = False
    return {
        "fortran": fortran,
        "transposed": BASE[:4, :3].T,
        "strided": BASE[::2, ::2],
        "backwards": BASE[2::-1, 3::-1],
        "read-only": read_only,
        "broadcast": np.broadcast_to(BASE[0, :4], SHAPE),
        "matrix": np.asarray(BASE[:3, :4]).view(type("Pixels", (np.ndarray,), {})),
    }


def test_arrays_in_any_order(place):
    """An array arrives as it is in whatever order its memory is: its bytes are those of `array.tobytes()`."""
    pub, sub = of_shape(place, "u1")
    for name, array in orders().items():
        assert array.shape == SHAPE
        pub.send(array)
        found = received(place, sub)
        assert (found if isinstance(found, bytes) else found.tobytes()) == array.tobytes(), name
    pub.offer(orders()["fortran"])
    asyncio.run(pub.send_async(orders()["strided"], timeout=PATIENCE))
    assert pub.offer_many([orders()["backwards"]]) == 1
    for name in ("fortran", "strided", "backwards"):
        found = received(place, sub)
        assert (found if isinstance(found, bytes) else found.tobytes()) == orders()[name].tobytes(), name


def test_arrays_in_any_order_through_a_codec(place):
    """The same where the codec is `penstock.array`, whatever the byte order of its numbers."""
    pub, sub = of_shape(place, "<f4", codec=True)
    for name, pixels in orders().items():
        for dtype in ("<f4", ">f4", "u1"):
            array = pixels.astype(dtype, order="K")
            pub.send(array)
            found = received(place, sub)
            assert found.dtype == np.dtype("<f4"), name
            assert (found == array).all(), name


def test_arrays_of_objects(place):
    """An array of Python objects, a structured one too, is refused with the channel's URI: its bytes are addresses."""
    pub, sub = of_shape(place, "u1")
    mixed = np.zeros(SHAPE, [("a", "f4"), ("O", "i4"), ("b", "O")])
    masked = np.ma.masked_array(np.zeros(SHAPE, "u1"), mask=True)
    for wrong in (np.full(SHAPE, "text", dtype=object), mixed, memoryview(np.zeros(SHAPE, object)), masked):
        for call in (
            pub.send,
            pub.offer,
            lambda one: pub.offer_many([one]),
            lambda one: asyncio.run(pub.send_async(one)),
        ):
            with pytest.raises(
                penstock.Invalid, match=f"^{place.pattern}: (an array of Python objects|a masked array|a frame has)"
            ):
                call(wrong)
    named = np.zeros(SHAPE, [("O", "u1")])  # a name is no type
    if place.subject.kind != "frames":
        pub.send(named)
        assert received(place, sub) == named.tobytes()
    assert sub.try_recv() is None


def test_no_value_is_rounded(place):
    """An array whose numbers would not be the same in the channel's dtype is refused, and the error says what to do. Whole numbers that fit are taken."""
    pub, sub = of_shape(place, "f4", codec=True)
    refused = [
        (np.full(SHAPE, 0.1), r"rounded; send array\.astype"),
        (np.full(SHAPE, 0.5), r"rounded; send array\.astype"),
        (Tensor(np.full(SHAPE, 0.5)), r"rounded; send array\.astype"),
        (np.full(SHAPE, 1j), r"rounded; send array\.astype"),
        (np.full(SHAPE, 2**24 + 1), "does not fit"),
        (np.ma.masked_array(np.zeros(SHAPE, "f4"), mask=True), "masked"),
        (np.full(SHAPE, 1.5, dtype=object), "Python objects"),
        (Tensor(np.zeros(SHAPE, "f4"), requires_grad=True), r"requires grad.*\.detach"),
        ("text", "does not fit"),
    ]
    for wrong, why in refused:
        for call in (
            pub.send,
            pub.offer,
            lambda one: pub.offer_many([one]),
            lambda one: asyncio.run(pub.send_async(one)),
        ):
            with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: .*{why}"):
                call(wrong)
    with pytest.raises(penstock.Invalid, match=f"^{place.pattern}: .*shape"):
        pub.send(np.zeros((4, 3), "f4"))
    for fine in (
        np.full(SHAPE, 7),
        np.full(SHAPE, 7, "f2"),
        np.full(SHAPE, 7).tolist(),
        Tensor(np.full(SHAPE, 7, "f4")),
    ):
        pub.send(fine)
        assert (received(place, sub) == 7).all()
    pub.send(np.full(SHAPE, 0.1).tolist())  # Python's floats have no length of their own
    assert (received(place, sub) == np.float32(0.1)).all()


def test_text(place):
    """A text is no message of bytes: TypeError, with the channel's URI and what to do. Where the codec takes text it arrives as text."""
    pub, sub = place.pair()
    for call in (pub.send, pub.offer, lambda one: pub.offer_many([one]), lambda one: asyncio.run(pub.send_async(one))):
        with pytest.raises(TypeError, match=f"^{place.pattern}: .*not str: encode it, or give the channel codec="):
            call("text")
    assert sub.try_recv() is None


def test_text_with_a_codec(place):
    """A codec of objects takes a text as it takes any other value."""
    pub = place.publish(codec="json")
    sub = place.subscribe(**{"codec": "json"} if place.subject.kind == "zmq" else {})
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send("text")
    assert place.body(sub.recv(timeout=PATIENCE)) == "text"
