"""Values of fixed size as columns: what a dtype holds is in its cell."""

import struct
import warnings

import numpy as np
import pyarrow as pa
import pytest

from penstock.columns import fixed


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="long doubles are not those of x86 here")
@pytest.mark.parametrize("dtype", ["g", "G"])
def test_odd_encodings_of_long_doubles_are_what_x86_reads(dtype):
    """A subnormal with the whole bit set is a number. Any other number without it is none: arithmetic takes it for NaN."""
    halves = [(0xB0, 0x8000), (1 << 63, 0), (0xA8A188C9E6C3F339, 0), (1 << 63, 1), (1, 5), (0xC0 << 56, 0x7FFF)]
    numbers = [struct.pack("<QH6x", *half) for half in halves]
    messages = numbers if dtype == "g" else [one + other for one, other in zip(numbers, numbers[::-1], strict=True)]
    (column,), errors = fixed.decode(
        {"kind": "array", "dtype": np.dtype(dtype).str, "shape": [1]}, pa.array(messages, pa.binary())
    )
    assert errors.null_count == len(messages)
    read = np.frombuffer(b"".join(messages), np.longdouble)
    cells = [part for cell in column.to_pylist() for part in (cell if dtype == "g" else cell[0].values())]
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # NumPy calls it an overflow to read a subnormal, and reads it right
        for number, cell in zip(read, map(np.longdouble, cells), strict=True):
            assert cell == number or (np.isnan(cell) and number != number), (number, cell)
