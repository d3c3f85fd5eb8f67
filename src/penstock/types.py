"""The types that programs hold, to name them in annotations: handles of each kind, messages, statuses. Types of recordings: `penstock.recording`.

A public door: everything here is documented to users. Handles are made by `penstock.publish`, `subscribe` and `join`.
"""

from penstock.channels.handles import NativePublication, NativeSubscription
from penstock.codecs import Codec
from penstock.latency import Latency
from penstock.net.udp_handle import Session, UdpPublication, UdpSubscription
from penstock.net.udp_options import UdpOptions, UdpReaderOptions
from penstock.net.zmq_options import ZmqOptions
from penstock.net.zmq_peers import ZmqRouter, ZmqTalker
from penstock.net.zmq_publication import ZmqPublication
from penstock.net.zmq_receiving import ZmqReceived
from penstock.net.zmq_requests import ZmqPending, ZmqReplier, ZmqRequest, ZmqRequester
from penstock.net.zmq_status import ZmqStatus
from penstock.net.zmq_subscription import ZmqSubscription
from penstock.options import FrameOptions, LogOptions, PipeOptions, RingOptions, SyncOptions
from penstock.patterns import Routed
from penstock.publication import Claim, Publication
from penstock.shm.frame import Frame, OpenFrame
from penstock.shm.frames import FramePublication, FrameSubscription
from penstock.shm.pipe import PullSubscription, PushPublication
from penstock.shm.requests import Pending, Replier, Request, Requester
from penstock.shm.sockets import Dealer, Pair, Router
from penstock.shm.sync_member import SyncMember
from penstock.shm.sync_message import BorrowedMessage, Change, SyncMessage
from penstock.status import Channels, ChannelStatus, Member, Totals
from penstock.subscription import Received, Subscription

__all__ = [
    "BorrowedMessage",
    "Change",
    "ChannelStatus",
    "Channels",
    "Claim",
    "Codec",
    "Dealer",
    "Frame",
    "FrameOptions",
    "FramePublication",
    "FrameSubscription",
    "Latency",
    "LogOptions",
    "Member",
    "NativePublication",
    "NativeSubscription",
    "OpenFrame",
    "Pair",
    "Pending",
    "PipeOptions",
    "Publication",
    "PullSubscription",
    "PushPublication",
    "Received",
    "Replier",
    "Request",
    "Requester",
    "RingOptions",
    "Routed",
    "Router",
    "Session",
    "Subscription",
    "SyncMember",
    "SyncMessage",
    "SyncOptions",
    "Totals",
    "UdpOptions",
    "UdpPublication",
    "UdpReaderOptions",
    "UdpSubscription",
    "ZmqOptions",
    "ZmqPending",
    "ZmqPublication",
    "ZmqReceived",
    "ZmqReplier",
    "ZmqRequest",
    "ZmqRequester",
    "ZmqRouter",
    "ZmqStatus",
    "ZmqSubscription",
    "ZmqTalker",
]
