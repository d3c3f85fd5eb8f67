"""Subscriptions that begin in a recording of the network log and go on live."""
