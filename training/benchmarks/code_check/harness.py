"""The trusted side: run a problem's own tests against a function in another process.

Runs in the sandbox behind the text of `wire.py`. It says that the tests passed by printing a token
that only it and the grader know, as its last act; whatever the model's code does, it can neither
print that token nor touch the tests.
"""

from __future__ import annotations

import builtins
import ctypes
import subprocess
import sys
from typing import Any

from training.benchmarks.code_check.wire import pack, receive, send, unpack

_PR_SET_DUMPABLE = 4


class Candidate:
    """Calls the model's function over the pipe; values come back as plain data."""

    def __init__(self, task: dict[str, str]) -> None:
        self.calls = 0
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", task["runner"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send({"source": task["source"], "entry_point": task["entry_point"]})
        reply = self._receive()
        if not reply or reply.get("ready") is not True:
            raise SystemExit("the code does not define " + task["entry_point"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._send({"args": pack(args), "kwargs": pack(kwargs)})
        reply = self._receive()
        if reply is None:
            raise SystemExit("the code ended its process")
        if "value" not in reply:
            kind = getattr(builtins, str(reply.get("error")), None)
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                kind = RuntimeError
            raise kind("raised by the code")
        self.calls += 1
        return unpack(reply["value"])

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        return receive(self.process.stdout)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            send(self.process.stdin, message)
        except OSError:
            raise SystemExit("the code ended its process") from None


def main(task: dict[str, str]) -> None:
    """Print the token if the problem's `check` runs to its end and called the code."""
    # Nobody with our user id may read our memory, where tests and token are.
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise SystemExit("the harness cannot close its memory")
    candidate = Candidate(task)
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(task["prompt"], "prompt.py", "exec"), space)
    space[task["entry_point"]] = candidate
    exec(compile(task["tests"], "tests.py", "exec"), space)
    space["check"](candidate)
    candidate.process.kill()
    if candidate.calls:
        print(task["token"])
