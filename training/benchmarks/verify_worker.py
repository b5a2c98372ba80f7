"""The process that runs math-verify, so that no answer can hang or eat the grader.

Run as `python -m training.benchmarks.verify_worker`. It imports math-verify once, then forks a
child that answers requests; the parent only watches. A child that runs past the limit of CPU or
wall time is killed and replaced, which costs a fork and no import. math-verify's own SIGALRM
timeouts are off: they can be bypassed and do not stop a C-level power.

One JSON line in, `{"gold", "answer"}`; one out, `{"equal": true | false | null, "reason"}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

CPU_SECONDS = 0.8
WALL_SECONDS = 10.0
MEMORY_BYTES = 1 << 30
REQUESTS_PER_CHILD = 2000  # math-verify's caches grow without bound


class Child:
    """A forked process that answers requests one at a time."""

    def __init__(self) -> None:
        to_child, self.send = os.pipe()
        self.receive, from_child = os.pipe()
        self.served = 0
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.send)
            os.close(self.receive)
            _serve(to_child, from_child)
        os.close(to_child)
        os.close(from_child)

    def ask(self, line: bytes) -> dict[str, Any]:
        """The child's answer, or a null verdict when it died or ran out of time."""
        self.served += 1
        started, cpu_before = time.monotonic(), _cpu_seconds(self.pid)
        try:
            _write_all(self.send, line)
        except BrokenPipeError:
            return {"equal": None, "reason": "math-verify's process ended before the request"}
        buffer = b""
        while not buffer.endswith(b"\n"):
            ready, _, _ = select.select([self.receive], [], [], 0.05)
            if ready:
                part = os.read(self.receive, 65536)
                if not part:
                    return {"equal": None, "reason": "math-verify ran out of memory"}
                buffer += part
                continue
            late = time.monotonic() - started > WALL_SECONDS
            if late or _cpu_seconds(self.pid) - cpu_before > CPU_SECONDS:
                return {"equal": None, "reason": "math-verify reached no verdict in time"}
        answer: dict[str, Any] = json.loads(buffer)
        return answer

    def end(self) -> None:
        """Kill and reap the child."""
        os.close(self.send)
        os.close(self.receive)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _serve(source: int, sink: int) -> NoReturn:
    """Answer requests until the pipe closes; never returns."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    sys.setrecursionlimit(3000)
    with os.fdopen(source, "rb") as requests:
        for line in requests:
            request = json.loads(line)
            _write_all(
                sink, json.dumps(_judge(request["gold"], request["answer"])).encode() + b"\n"
            )
    os._exit(0)


def _judge(gold: str, answer: str) -> dict[str, Any]:
    from math_verify import parse, verify

    try:
        parsed_gold = parse(gold, parsing_timeout=None)
        parsed_answer = parse(answer, parsing_timeout=None)
        if not parsed_gold or not parsed_answer:
            side = "the answer" if parsed_gold else "the key"
            return {"equal": None, "reason": f"math-verify cannot read {side}"}
        equal = bool(verify(parsed_gold, parsed_answer, timeout_seconds=None))
    except MemoryError:
        return {"equal": None, "reason": "math-verify ran out of memory"}
    except (Exception, RecursionError) as error:
        return {"equal": None, "reason": f"math-verify failed with {type(error).__name__}"}
    return {"equal": equal, "reason": f"math-verify calls them {'equal' if equal else 'different'}"}


def _cpu_seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def main() -> None:
    """Serve requests from standard input until it closes."""
    import logging

    import math_verify  # noqa: F401  imported before the fork, so that children start ready

    logging.disable(logging.CRITICAL)
    _judge("1", "1")
    child = Child()
    try:
        for line in sys.stdin.buffer:
            answer = child.ask(line)
            _write_all(1, json.dumps(answer).encode() + b"\n")
            hurt = answer["equal"] is None and "cannot read" not in answer["reason"]
            if hurt or child.served >= REQUESTS_PER_CHILD:
                child.end()
                child = Child()
    finally:
        child.end()


if __name__ == "__main__":
    main()
