"""Texts that are URIs of places, told from paths. Reads no URI: `storage` does that. Imports nothing that is slow to load."""

from __future__ import annotations

import os
import re

URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
SERVED = ("grpc", "grpc+tcp", "grpc+tls")  # schemes of servers
SCHEMES = ("s3", *SERVED)
TOKEN_FILE, TLS_ROOTS = "PENSTOCK_TOKEN_FILE", "PENSTOCK_TLS_ROOTS"  # variables for what no URI may contain


def is_remote(text: str | os.PathLike[str]) -> bool:
    """Whether a text is a URI of an object storage or of a server."""
    found = URI.match(os.fsdecode(text))
    return found is not None and found[1].lower() in SCHEMES


def is_uri(text: str) -> bool:
    """Whether a text is a URI and no path: it has a scheme and a slash, or a scheme that this library knows."""
    return URI.match(text) is not None or (text.partition(":")[0].lower() in ("file", *SCHEMES) and ":" in text)
