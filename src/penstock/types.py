"""The types that programs hold, to name them in annotations: roles, handles of each kind, messages, statuses. Types of recordings: `penstock.record`.

A public door: everything here is documented to users. Handles are made by `penstock.publish`, `subscribe` and `join`. A role is an abstract
class, which every kind that has the role implements.
"""

from penstock.channels.handles import NativePublication, NativeSubscription
from penstock.channels.interfaces.patterns import Routed
from penstock.channels.interfaces.publication import Claim, Publication
from penstock.channels.interfaces.roles import (
    Dealer,
    Member,
    Pair,
    Pending,
    Puller,
    Pusher,
    Replier,
    Request,
    Requester,
    Router,
)
from penstock.channels.interfaces.subscription import Received, Subscription
from penstock.channels.latency import Latency
from penstock.channels.network import NetworkReceiver, NetworkSession, NetworkStatus
from penstock.channels.status import ChannelMember, Channels, ChannelStatus, Totals
from penstock.channels.uri.value import ChannelValue
from penstock.channels.waiting.why.graph import Chain, Why
from penstock.channels.waiting.why.records import Wait, WaitedFor, WaitingProcess
from penstock.codecs import Codec
from penstock.front.counters import Counter
from penstock.front.logs import LogLine
from penstock.kinds.frames.frame import Frame, OpenFrame
from penstock.kinds.frames.handles import FramePublication, FrameSubscription
from penstock.kinds.frames.options import FrameOptions
from penstock.kinds.log import LogOptions
from penstock.kinds.pipe.opener import PipePuller, PipePusher
from penstock.kinds.pipe.options import PipeOptions
from penstock.kinds.pipe.replies import PipeReplier, PipeRequest
from penstock.kinds.pipe.requests import PipePending, PipeRequester
from penstock.kinds.pipe.sockets import PipeDealer, PipePair, PipeRouter
from penstock.kinds.ring import RingOptions
from penstock.kinds.sync.member import SyncMember
from penstock.kinds.sync.message import BorrowedMessage, Change, SyncMessage
from penstock.kinds.sync.options import SyncOptions
from penstock.kinds.udp.handle import Session, UdpPublication, UdpSubscription
from penstock.kinds.udp.history.subscription import HistorySubscription
from penstock.kinds.udp.options import UdpOptions, UdpReaderOptions
from penstock.kinds.zmq.peers import ZmqDealer, ZmqPair, ZmqPuller, ZmqPusher, ZmqRouter
from penstock.kinds.zmq.publication import ZmqPublication
from penstock.kinds.zmq.receiving import ZmqReceived
from penstock.kinds.zmq.requests import ZmqPending, ZmqReplier, ZmqRequest, ZmqRequester
from penstock.kinds.zmq.socket.options import ZmqOptions
from penstock.kinds.zmq.socket.status import ZmqStatus
from penstock.kinds.zmq.subscription import ZmqSubscription

__all__ = [
    "BorrowedMessage",
    "Chain",
    "Change",
    "ChannelMember",
    "ChannelStatus",
    "ChannelValue",
    "Channels",
    "Claim",
    "Codec",
    "Counter",
    "Dealer",
    "Frame",
    "FrameOptions",
    "FramePublication",
    "FrameSubscription",
    "HistorySubscription",
    "Latency",
    "LogLine",
    "LogOptions",
    "Member",
    "NativePublication",
    "NativeSubscription",
    "NetworkReceiver",
    "NetworkSession",
    "NetworkStatus",
    "OpenFrame",
    "Pair",
    "Pending",
    "PipeDealer",
    "PipeOptions",
    "PipePair",
    "PipePending",
    "PipePuller",
    "PipePusher",
    "PipeReplier",
    "PipeRequest",
    "PipeRequester",
    "PipeRouter",
    "Publication",
    "Puller",
    "Pusher",
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
    "Wait",
    "WaitedFor",
    "WaitingProcess",
    "Why",
    "ZmqDealer",
    "ZmqOptions",
    "ZmqPair",
    "ZmqPending",
    "ZmqPublication",
    "ZmqPuller",
    "ZmqPusher",
    "ZmqReceived",
    "ZmqReplier",
    "ZmqRequest",
    "ZmqRequester",
    "ZmqRouter",
    "ZmqStatus",
    "ZmqSubscription",
]
