"""dora-rs without copies: a sample of its shared memory is filled in place and read in place."""

from __future__ import annotations

from functools import partial

from bench.rivals import dora

flow = partial(dora.flow, loaned=True)
