"""A supervisor that follows a script: greets properly, then answers every call as it is told.

    python scripted_supervisor.py SOCKET SOURCE_HASH REPLY

REPLY is the JSON of the reply without its id, or one of: hang, close, garbage, huge, list.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time


def frame(message: object) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def main() -> None:
    path, source, reply = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(frame({"source": source}))
    stream = connection.makefile("rb")
    while head := stream.read(4):
        request = json.loads(stream.read(struct.unpack(">I", head)[0]))
        if reply == "hang":
            time.sleep(1000)
        elif reply == "close":
            return
        elif reply == "garbage":
            connection.sendall(struct.pack(">I", 5) + b"\xff{]\x00!")
        elif reply == "huge":
            connection.sendall(struct.pack(">I", 2**31))
        elif reply == "list":
            connection.sendall(frame(["ok"]))
        else:
            connection.sendall(frame({"id": request["id"]} | json.loads(reply)))


if __name__ == "__main__":
    main()
