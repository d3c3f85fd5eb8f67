"""The kinds of channels that this version has: one line for each. A kind's module is loaded when its first channel is opened."""

from __future__ import annotations

from penstock.kinds import register

register("log", "penstock.shm.log", "KIND")
register("ring", "penstock.shm.ring", "KIND")
register("sync", "penstock.shm.sync", "KIND")
register("pipe", "penstock.shm.sockets", "KIND")
register("frames", "penstock.shm.frames", "KIND")
register("zmq+tcp", "penstock.net.zmq_kinds", "TCP")
register("zmq+ipc", "penstock.net.zmq_kinds", "IPC")
register("udp", "penstock.net.udp", "KIND", foreign="aeron")
