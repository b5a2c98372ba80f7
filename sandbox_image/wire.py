"""Frames on the socket: a length of four bytes, big end first, and that many bytes of JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MAX_FRAME = 16 * 1024 * 1024
"""The longest frame either side accepts, in bytes."""


class WireError(Exception):
    """The other side broke the protocol; the connection is of no further use."""


def pack(message: dict[str, Any]) -> bytes:
    """One frame. Lone surrogates travel as JSON escapes, so any Python text fits."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """The message in a frame's body; raises WireError when it is not a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise WireError(f"a frame holds no JSON: {problem}") from None
    if not isinstance(message, dict):
        raise WireError("a frame holds JSON that is not an object")
    return message


def read_frame(connection: socket.socket) -> bytes | None:
    """The next frame's body, or None at a clean end; raises WireError on anything else."""
    head = _read_exactly(connection, 4)
    if not head:
        return None
    if len(head) < 4:
        raise WireError("the connection ended inside a frame's head")
    (length,) = struct.unpack(">I", head)
    if length > MAX_FRAME:
        raise WireError(f"a frame announces {length} bytes; at most {MAX_FRAME} are accepted")
    body = _read_exactly(connection, length)
    if len(body) < length:
        raise WireError("the connection ended inside a frame")
    return body


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
