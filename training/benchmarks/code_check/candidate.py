"""The untrusted side: run the model's code, then call its function for every request.

Runs in the sandbox behind the text of `wire.py`, in a process of its own that is given neither the
tests nor the token.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from training.benchmarks.code_check.wire import pack, receive, send, unpack


def serve() -> None:
    """Answer calls until the pipe closes."""
    sys.setrecursionlimit(5000)
    calls = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    task = receive(calls)
    space: dict[str, Any] = {"__name__": "candidate"}
    try:
        exec(compile(task["source"], "candidate.py", "exec"), space)
        function = space[task["entry_point"]]
        send(replies, {"ready": True})
    except BaseException as error:
        send(replies, {"ready": False, "error": type(error).__name__})
        return
    while True:
        call = receive(calls)
        if call is None:
            return
        try:
            result = function(*unpack(call["args"]), **unpack(call["kwargs"]))
            send(replies, {"value": pack(result)})
        except BaseException as error:
            send(replies, {"error": type(error).__name__})
