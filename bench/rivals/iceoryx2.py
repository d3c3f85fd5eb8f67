"""iceoryx2 publish-subscribe over shared memory: no overflow, so that nothing is lost; the receiver polls without a pause."""

from __future__ import annotations

import ctypes
import importlib

iox2 = importlib.import_module("iceoryx2")


def _service(name: str, size: int):
    iox2.set_log_level(iox2.LogLevel.Fatal)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    builder = node.service_builder(iox2.ServiceName.new(name)).publish_subscribe(iox2.Slice[ctypes.c_uint8])
    service = (
        builder.enable_safe_overflow(False).subscriber_max_buffer_size(64 if size < 1 << 20 else 8).max_subscribers(8)
    )
    return node, service.open_or_create()


class _Sender:
    def __init__(self, name: str, size: int) -> None:
        self.node, self.service = _service(name, size)
        builder = self.service.publisher_builder().initial_max_slice_len(size)
        strategy = getattr(iox2.BackpressureStrategy, "RetryUntilDelivered", None) or iox2.BackpressureStrategy.Block
        self.publisher = builder.backpressure_strategy(strategy).create()

    def send(self, data: bytes) -> None:
        sample = self.publisher.loan_slice_uninit(len(data))
        ctypes.memmove(sample.payload_ptr, data, len(data))
        sample.assume_init().send()

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Receiver:
    def __init__(self, name: str, size: int) -> None:
        self.node, self.service = _service(name, size)
        self.subscriber = self.service.subscriber_builder().create()

    def recv(self) -> bytes:
        receive = self.subscriber.receive
        while True:
            sample = receive()
            if sample is not None:
                data = ctypes.string_at(sample.payload_ptr, sample.payload().len())
                sample.delete()
                return data

    def close(self) -> None:
        pass


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publisher."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A subscriber."""
    return _Receiver(name, size)
