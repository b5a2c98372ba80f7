"""The process that runs math-verify, so that no answer can hang or eat the grader.

Run as `python -m training.benchmarks.verify_worker`. It imports math-verify once, then forks a
child that answers requests; the parent only watches. A child that runs past the limit of CPU or
wall time, or dies, is replaced, which costs a fork and no import, and its request is answered by a
null verdict. math-verify's own SIGALRM timeouts are off: they can be bypassed and do not stop a
C-level power.

One JSON line in, `{"number", "gold", "answer"}`; one out, `{"number", "equal", "reason"}`, where
`equal` is true, false or null. A reply may come twice, from child and parent, when a limit is met
just as the child answers; the number tells which request it belongs to.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
from typing import Any, NoReturn

CPU_SECONDS = 0.8
WALL_SECONDS = 10.0
MEMORY_BYTES = 1 << 30
REQUESTS_PER_CHILD = 2000  # math-verify's caches grow without bound
CANNOT_READ = "math-verify cannot read"

_REPLACE = 17  # exit status of a child that has served its share; 0: the input closed
_STATE = struct.Struct("qdd")  # request in work (0: none), CPU and wall clock at its start
_LOOK_EVERY = 0.02


def main() -> None:
    """Serve standard input until it closes."""
    import logging

    import math_verify  # noqa: F401  imported before the fork, so that children start ready

    logging.disable(logging.CRITICAL)
    judge("$1$", "$1$")
    shared = mmap.mmap(-1, _STATE.size)
    while _watch(_fork(shared), shared):
        pass


def _fork(shared: mmap.mmap) -> int:
    shared[:] = _STATE.pack(0, 0.0, 0.0)
    pid = os.fork()
    if pid == 0:
        _serve(shared)
    return pid


def _watch(pid: int, shared: mmap.mmap) -> bool:
    """Watch a child to its end; True when another one must take over."""
    while True:
        time.sleep(_LOOK_EVERY)
        ended, status = os.waitpid(pid, os.WNOHANG)
        number, cpu, wall = _STATE.unpack(shared[:])
        if ended:
            if number:
                _reply(number, None, "math-verify ran out of memory or crashed")
            return bool(number) or os.waitstatus_to_exitcode(status) == _REPLACE
        if not number:
            continue
        late = time.monotonic() - wall > WALL_SECONDS
        if late or _cpu_seconds(pid) - cpu > CPU_SECONDS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            if _STATE.unpack(shared[:])[0] == number:
                _reply(number, None, "math-verify reached no verdict in time")
            return True


def _serve(shared: mmap.mmap) -> NoReturn:
    """Answer requests until the input closes or the share is served; never returns."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    sys.setrecursionlimit(3000)
    for _ in range(REQUESTS_PER_CHILD):
        line = _read_line()
        if not line:
            os._exit(0)
        request = json.loads(line)
        shared[:] = _STATE.pack(request["number"], time.process_time(), time.monotonic())
        equal, reason = judge(request["gold"], request["answer"])
        _reply(request["number"], equal, reason)
        shared[:] = _STATE.pack(0, 0.0, 0.0)
    os._exit(_REPLACE)


def judge(gold: str, answer: str) -> tuple[bool | None, str]:
    """math-verify's verdict on two LaTeX formulas between dollar signs, and a clause about it.

    Only LaTeX is parsed: math-verify's plain-text reader would pick a number out of what it
    cannot parse as a whole.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    try:
        sides = [
            parse(text, [LatexExtractionConfig()], parsing_timeout=None) for text in (gold, answer)
        ]
        for side, name in zip(sides, ("key", "answer"), strict=True):
            if not side or isinstance(side[0], str):
                return None, f"{CANNOT_READ} the {name}"
        if _differ_at_a_point(sides[0][0], sides[1][0]):
            return False, "they differ where both are evaluated"
        equal = bool(verify(sides[0], sides[1], timeout_seconds=None))
    except MemoryError:
        return None, "math-verify ran out of memory"
    except (Exception, RecursionError) as error:
        return None, f"math-verify failed with {type(error).__name__}"
    return equal, f"math-verify calls them {'equal' if equal else 'different'}"


def _differ_at_a_point(gold: Any, answer: Any) -> bool:
    """True when two plain expressions in the same names clearly differ at some point.

    It spares math-verify the search for a simplification that cannot exist. Never true for
    anything but plain expressions, nor where a value is not finite.
    """
    from sympy import Expr, Rational

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return False
    names = gold.free_symbols
    if not names or names != answer.free_symbols:
        return False
    point = {name: Rational(7919 + 97 * i, 6007) for i, name in enumerate(sorted(names, key=str))}
    try:
        one, other = complex(gold.evalf(15, subs=point)), complex(answer.evalf(15, subs=point))
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False
    size = max(abs(one), abs(other))
    return size < 1e100 and abs(one - other) > 1e-6 * size


def _read_line() -> bytes:
    """One line from standard input, unbuffered, so that nothing is lost with a child."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            return b""
        line += part
    return line


def _reply(number: int, equal: bool | None, reason: str) -> None:
    line = json.dumps({"number": number, "equal": equal, "reason": reason}) + "\n"
    view = memoryview(line.encode())
    while view:
        view = view[os.write(1, view) :]


def _cpu_seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
