"""Small hostile programs, one a promise of the sandbox, and what each must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from training.sandbox.verdict import CallResult, Verdict


@dataclass(frozen=True)
class Probe:
    """`holds` says whether the result of running `code` keeps the promise."""

    name: str
    promise: str
    code: str
    holds: Callable[[CallResult], bool]
    wall_seconds: float | None = None
    memory_mb: int | None = None
    isolated_only: bool = False
    """Whether the level `unsafe` does not make this promise."""


def _prints(text: str) -> Callable[[CallResult], bool]:
    return lambda result: result.verdict is Verdict.OK and result.stdout == text


def _ends(verdict: Verdict) -> Callable[[CallResult], bool]:
    return lambda result: result.verdict is verdict


_LIBRARIES = """
import numpy, scipy.linalg, sympy
print(int(numpy.arange(4).sum()), scipy.linalg.det([[2.0]]), sympy.sqrt(8))
"""

_NETWORK = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    try:
        socket.socket(family)
        print("open", family)
    except OSError:
        pass
"""

_FILES = """
import os
open("own", "w").close()
for top in os.listdir("/"):
    inside = ["", "/anchorloop", "/anchorloop/sandbox_image", "/local", "/sandbox", "/shm", "/tmp"]
    for place in (f"/{top}{more}" for more in inside):
        if top != "scratch" and os.path.isdir(place):
            try:
                open(place + "/probe", "w").close()
                print("wrote to", place)
            except OSError:
                pass
"""

_PROCESSES = """
import os
for target in {1, os.getppid()}:
    try:
        os.kill(target, 9)
    except OSError:
        pass
try:
    seen = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
except OSError:
    seen = set()
print(sorted(seen - {1, os.getpid()}))
"""

_ENVIRONMENT = """
import os
print(sorted(set(os.environ) - {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"}))
"""

_ORPHAN = """
import os, time
above = os.path.abspath("..")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            open(above + "/orphan", "w").close()
            time.sleep(0.001)
    os._exit(0)
while not os.path.exists("../orphan"):
    time.sleep(0.001)
"""

_STATELESS = """
import os, time
time.sleep(0.1)
print(os.listdir("."), os.listdir(".."))
"""

# The order matters once: `stateless` looks for what `orphans` left.
PROBES = [
    Probe(
        "libraries",
        "NumPy, SciPy and SymPy work within the memory limit",
        _LIBRARIES,
        _prints("6 2.0 2*sqrt(2)\n"),
    ),
    Probe("network", "no program gets a socket of any kind", _NETWORK, _prints("")),
    Probe(
        "files",
        "nothing can be written outside the call's own folder",
        _FILES,
        _prints(""),
        isolated_only=True,
    ),
    Probe(
        "processes",
        "no foreign process can be seen or ended",
        _PROCESSES,
        _prints("[]\n"),
        isolated_only=True,
    ),
    Probe("environment", "nothing of the host's environment shows", _ENVIRONMENT, _prints("[]\n")),
    Probe(
        "time",
        "a program that does not end is ended",
        "while True: pass",
        _ends(Verdict.TIMEOUT),
        wall_seconds=0.5,
    ),
    Probe(
        "memory",
        "a program that takes too much memory is ended",
        "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))",
        _ends(Verdict.OUT_OF_MEMORY),
        memory_mb=128,
    ),
    Probe(
        "output",
        "a program that prints too much is ended",
        "while True: print('x' * 1000)",
        _ends(Verdict.OUTPUT_LIMIT),
    ),
    Probe("orphans", "a process that outlives its program is ended", _ORPHAN, _prints("")),
    Probe(
        "stateless",
        "nothing of one call is left for the next",
        _STATELESS,
        _prints("[] ['call']\n"),
    ),
]
