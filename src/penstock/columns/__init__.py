"""Messages as typed Arrow columns: `contract` decodes payloads by a stream's contract, `parts` writes files. Knows codecs and Arrow; knows no recording and no Spark."""

from __future__ import annotations

from penstock.util.extras import explain_missing

with explain_missing("decoding messages to columns"):
    import pyarrow  # noqa: F401
