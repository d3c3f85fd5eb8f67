"""Arrays and records whose values would change in a channel's dtype are refused on every kind: times, texts, signs, parts."""

import datetime
import warnings

import numpy as np
import pytest

import penstock

DTYPES = ("M8[s]", "m8[s]", "M8[ns]", "i8", "u1", "f8", "c16", "?", "S3", "U3", "V4")
GIVEN = (
    np.array([0.25, 1.75]),
    np.array([0.0, 1.0]),
    np.array([1e30, np.nan]),
    np.array([1, 2], "m8[h]"),
    np.array([1, 2], "m8[ms]"),
    np.array(["2020", "NaT"], "M8[D]"),
    np.array(["2020-01-01T00:00:00.5", "2020"], "M8[ms]"),
    np.array([1 + 2j, 0]),
    np.array([1 + 0j, 0]),
    np.array([2**63, 1], "u8"),
    np.array([-(2**63), 1], "i8"),
    np.array([-1, 1], "i8"),
    np.array([True, False]),
    np.array(["ab", "c"]),
    np.array(["abcd", "c"]),
    np.array([b"abcd", b"c"]),
    np.array(["é", "c"]),
    np.array([1, 2], "i8"),
    np.array([1.5, 2], object),
)


def _equal(one, there):
    """Whether a value that arrived is the one that was sent."""
    if isinstance(there, np.datetime64 | np.timedelta64):
        kind = type(there)
        if isinstance(one, kind):
            return bool(one == there) or (np.isnat(one) and np.isnat(there))
        return isinstance(one, np.integer) and int(one) == int(there.astype("i8")) and not np.isnat(there)
    if isinstance(one, np.datetime64 | np.timedelta64):
        return False
    if isinstance(there, str) and isinstance(one, bytes):
        one = one.decode()
    if isinstance(there, bytes) and isinstance(one, str):
        one = one.encode()
    if isinstance(there, np.void):
        return bytes(one).ljust(4, b"\0") == bytes(there)
    return (type(one) in (str, np.str_, bytes, np.bytes_) and one == there) or bool(np.equal(one, there))


def _check(pub, sub, given, dtype):
    """Sends a value, and says whether it was taken: then it is there as it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            pub.send(given)
        except penstock.Invalid as error:
            assert str(error).startswith(pub.channel), error  # noqa: PT017  (it may be taken, too)
            return False
    there = getattr(sub.recv(timeout=60), "array", None)
    for one, got in zip(given, there, strict=True):
        if isinstance(one, np.floating) and np.isnan(one):
            assert np.isnan(got)
        else:
            assert _equal(one, got), (dtype, one, got)
    return True


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "V4"])
def test_arrays_of_every_dtype_arrive_as_they_are_or_are_refused(dtype):
    """A frame is what the array was, or nothing is sent."""
    with penstock.publish("frames:n", shape=2, dtype=dtype) as pub, penstock.subscribe("frames:n") as sub:
        taken = [given for given in GIVEN if _check(pub, sub, given, dtype)]
    assert taken, "some of them fit"


TIME_REFUSALS = [
    np.array([0.0, 1.0]),
    np.array([1e30, np.nan]),
    np.array([1 + 0j, 0]),
    np.array([True, False]),
    np.array([2**63, 1], "u8"),
    np.array([-(2**63), 1], "i8"),
    np.array([0.5, 1], "f4"),
    [np.float64(1.75), 1],
    [1.75, 1],
    [True, False],
    [datetime.datetime(2020, 1, 1), 1.5],
]


def _ways(dtype):
    """Every way to give a channel of two times: an array's codec, a record's fields, a frame, ZeroMQ."""
    codec = penstock.array(dtype, (2,))
    record = np.dtype([("n", "i4"), ("t", dtype, (2,))])
    yield "log:w", {"codec": codec}, lambda value: value
    yield "ring:w", {"codec": codec}, lambda value: value
    yield "sync:w", {"codec": codec}, lambda value: value
    yield "pipe:w", {"codec": codec}, lambda value: value
    yield "frames:w", {"shape": (2,), "dtype": dtype}, lambda value: value
    yield "log:r", {"codec": record}, lambda value: (1, value)
    yield (
        "log:s",
        {"codec": record},
        lambda value: np.array([(1, value)], [("n", "i4"), ("t", np.asarray(value).dtype, (2,))]),
    )
    yield "zmq+tcp://127.0.0.1:*", {"codec": codec}, lambda value: value


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[s]", "M8[ns]"])
def test_numbers_that_are_no_whole_units_are_no_times(dtype):
    """Fractions, NaN, complex numbers, truth values and what is out of range are refused, however they are given, on every kind."""
    for uri, options, made in _ways(dtype):
        with penstock.publish(uri, **options) as pub:
            for value in TIME_REFUSALS:
                given = made(value)
                if getattr(given, "dtype", np.dtype("i4")).hasobject:
                    continue
                with pytest.raises(penstock.Invalid, match="fit"):
                    pub.send(given)
            other = np.array([1, 2], "m8[h]" if dtype.startswith("M") else "M8[h]")
            with pytest.raises(penstock.Invalid, match="fit"):
                pub.send(made(other))
            if dtype != "M8[ns]":
                with pytest.raises(penstock.Invalid, match="fit"):
                    pub.send(made(np.array([1, 2], dtype[0] + "8[ms]")))
            pub.send(made(np.array([1, 2], "i8")), timeout=60)


def test_shorter_texts_fit_a_longer_dtype():
    """An array of shorter texts is taken; one that would be cut is refused, with its length."""
    for dtype, short, long in (
        ("U3", np.array(["ab", "c"]), np.array(["abcd", "c"])),
        ("S3", np.array([b"ab", b"c"]), np.array([b"abcd", b"c"])),
    ):
        with penstock.publish("log:t", codec=penstock.array(dtype, 2)) as pub, penstock.subscribe("log:t") as sub:
            pub.send(short)
            assert sub.recv(1).tolist() == short.tolist()
            with pytest.raises(penstock.Invalid, match="at most 3 characters"):
                pub.send(long)
            for other in (np.array(["2020", "2021"], "M8[ns]"), np.array([1, 2]), np.array([1.5, 2])):
                with pytest.raises(penstock.Invalid, match="fit"):
                    pub.send(other)
        penstock.remove("log:t")


def test_addresses_are_no_messages():
    """ctypes' pointers, and objects, are refused on every kind: their bytes mean nothing elsewhere."""
    import ctypes

    class Held(ctypes.Structure):
        _fields_ = (("count", ctypes.c_int), ("text", ctypes.c_char_p))

    held = ctypes.c_int(5)
    values = (
        (ctypes.py_object * 2)(1, 2),
        ctypes.py_object(3),
        (ctypes.c_char_p * 2)(b"a", b"b"),
        (ctypes.c_wchar_p * 1)("a"),
        (ctypes.c_void_p * 1)(1),
        ctypes.pointer(held),
        Held(1, b"a"),
    )
    plain = (
        (ctypes.c_int * 2)(1, 2),
        ctypes.c_double(1.5),
        np.array([1 + 2j]),
        np.zeros(2, [("O", "i4"), ("P&z", "f8")]),
    )
    for uri in ("log:c", "ring:c", "pipe:c", "sync:c", "zmq+tcp://127.0.0.1:*"):
        with penstock.publish(uri) as pub, penstock.subscribe(uri if "*" not in uri else f"zmq+{pub.address}"):
            for value in values:
                for send in (pub.send, pub.offer, lambda one, pub=pub: pub.offer_many([one])):
                    with pytest.raises(
                        penstock.Invalid, match=rf"^{uri.replace('*', '.').replace('+', '.')}: .*only addresses"
                    ):
                        send(value)
            for value in plain:
                pub.send(value, timeout=60)
