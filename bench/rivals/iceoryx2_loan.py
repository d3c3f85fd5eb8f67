"""iceoryx2 without copies: samples are loaned and read in place, as arrays; no overflow, so that nothing is lost."""

from __future__ import annotations

import ctypes

import numpy as np

from bench.rivals import iceoryx2


class _Sender(iceoryx2._Sender):
    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.sent, self.pixels = 0, ctypes.c_uint8 * size

    def send(self, data: bytes) -> None:
        sample = self.publisher.loan_slice_uninit(len(data))
        array = np.ndarray((len(data),), "u1", self.pixels.from_address(sample.payload_ptr))
        array[0] = self.sent % 256
        sample.assume_init().send()
        self.sent += 1


class _Receiver(iceoryx2._Receiver):
    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.received, self.size, self.pixels = 0, size, ctypes.c_uint8 * size

    def recv(self) -> None:
        receive = self.subscriber.receive
        while True:
            sample = receive()
            if sample is not None:
                array = np.ndarray((self.size,), "u1", self.pixels.from_address(sample.payload_ptr))
                assert array[0] == self.received % 256
                sample.delete()
                self.received += 1
                return


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publisher."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int) -> _Receiver:
    """A subscriber."""
    return _Receiver(name, size)
