"""The kinds of channels that this version has: one line for each. A kind's module is loaded when its first channel is opened."""

from __future__ import annotations

from penstock.channels.uri.registry import register

register("log", "penstock.kinds.log", "KIND")
register("ring", "penstock.kinds.ring", "KIND")
register("sync", "penstock.kinds.sync.opener", "KIND")
register("pipe", "penstock.kinds.pipe.sockets", "KIND")
register("frames", "penstock.kinds.frames.opener", "KIND")
register("zmq+tcp", "penstock.kinds.zmq.opener", "TCP")
register("zmq+ipc", "penstock.kinds.zmq.opener", "IPC")
register("udp", "penstock.kinds.udp.opener", "KIND", foreign="aeron")
