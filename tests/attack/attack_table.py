"""What an attack is, and the attacks on memory, time, processes, output and disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from training.sandbox.verdict import CallResult, Verdict

OK, ERROR, TIMEOUT = Verdict.OK, Verdict.ERROR, Verdict.TIMEOUT
MEMORY, OUTPUT = Verdict.OUT_OF_MEMORY, Verdict.OUTPUT_LIMIT


def anything(result: CallResult) -> bool:
    return True


@dataclass(frozen=True)
class Attack:
    number: int
    name: str
    code: str
    verdicts: tuple[Verdict, ...]
    holds: Callable[[CallResult], bool] = anything
    """What must be true of the result besides its verdict."""


def prints(text: str) -> Callable[[CallResult], bool]:
    return lambda result: result.stdout == text


def complains(words: str) -> Callable[[CallResult], bool]:
    return lambda result: words in result.stderr


def killed_by(number: int) -> Callable[[CallResult], bool]:
    return lambda result: result.signal == number


RESOURCES = [
    Attack(1, "endless loop", "while True: pass", (TIMEOUT,), killed_by(9)),
    Attack(
        2,
        "sleep that ignores every signal",
        """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
print("asleep")
while True: time.sleep(1000)
""",
        (TIMEOUT,),
        prints("asleep\n"),
    ),
    Attack(3, "fork bomb", "import os\nwhile True: os.fork()", (ERROR, TIMEOUT)),
    Attack(
        3,
        "stubborn fork bomb",
        """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
        (TIMEOUT,),
    ),
    Attack(
        4,
        "thread bomb",
        """
import threading, time
threading.stack_size(65536)
while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
""",
        (ERROR,),
        complains("can't start new thread"),
    ),
    Attack(5, "allocate 4 GB", "held = bytearray(4 << 30)", (MEMORY,)),
    Attack(5, "allocate in steps", "x = []\nwhile True: x.append(b'x' * (1 << 20))", (MEMORY,)),
    Attack(
        5,
        "hide the memory error",
        """
held = []
while True:
    try: held.append(b"x" * (1 << 20))
    except MemoryError: pass
""",
        (MEMORY, TIMEOUT),
    ),
    Attack(
        6,
        "leak through children",
        """
import os, time
for _ in range(1000):
    try:
        if os.fork() == 0:
            held = b"x" * (24 << 20)
            time.sleep(1000)
    except OSError:
        time.sleep(0.01)
""",
        (MEMORY,),
    ),
    Attack(
        6,
        "leak through grandchildren of dead parents",
        """
import os, time
def descend(depth):
    held = b"x" * (24 << 20)
    if depth and os.fork() == 0:
        descend(depth - 1)
    time.sleep(1000)
descend(24)
""",
        (MEMORY, TIMEOUT),  # the last ones may run out of address space before the sum is seen
    ),
    Attack(
        6,
        "hide memory in shared pages without a file",
        """
import mmap, os
held = []
for _ in range(40):
    held.append(mmap.mmap(-1, 100 << 20))
    if os.fork() == 0:
        held[-1].write(b"x" * (100 << 20))
        os._exit(0)
    os.wait()
print("hidden")
""",
        (ERROR,),
        complains("Operation not permitted"),
    ),
    Attack(6, "memory file", "import os; os.memfd_create('x')", (ERROR,), complains("permitted")),
    Attack(7, "giant power", "print(2 ** 10 ** 9)", (TIMEOUT, MEMORY, ERROR)),
    Attack(7, "giant string", "print('a' * 10 ** 10)", (MEMORY,)),
    Attack(8, "endless print", "while True: print('x')", (OUTPUT,)),
    Attack(
        9,
        "10 MB on one line",
        "print('x' * 10_000_000)",
        (OUTPUT,),
        lambda result: result.stdout == "x" * 262_144 and result.truncated,
    ),
    Attack(
        9,
        "flood of stderr",
        "import sys\nprint('kept')\nwhile True: sys.stderr.write('x' * 1000)",
        (OUTPUT,),
        prints("kept\n"),
    ),
    Attack(
        10,
        "exactly 200 KB of output",
        "import sys; sys.stdout.write('y' * 204_800)",
        (OK,),
        prints("y" * 204_800),
    ),
    Attack(
        10,
        "exactly the limit",
        "import sys; sys.stdout.write('y' * 262_144)",
        (OK,),
        lambda result: result.stdout == "y" * 262_144 and not result.truncated,
    ),
    Attack(
        11,
        "invalid UTF-8, NUL and escapes",
        r"import sys; sys.stdout.buffer.write(b'a\xff\x00\x1b[31m\tb\n')",
        (OK,),
        prints("a\ufffd\ufffd\ufffd[31m\tb\n"),
    ),
    Attack(
        12,
        "fill the folder",
        """
n = 0
while True:
    with open(f"f{n}", "wb") as file: file.write(b"x" * (4 << 20))
    n += 1
""",
        (ERROR,),
        complains("No space left"),
    ),
    Attack(
        13,
        "fill /dev/shm",
        "file = open('/dev/shm/x', 'wb')\nwhile True: file.write(b'x' * (1 << 20))",
        (ERROR,),
    ),
    Attack(
        14,
        "a million files",
        "for n in range(1_000_000): open(f'f{n}', 'w').close()",
        (ERROR,),
        complains("No space left"),
    ),
    Attack(
        14,
        "folders without end, and without rights",
        """
import os
try:
    while True:
        os.mkdir("d"); os.chdir("d")
except OSError:
    pass
for _ in range(3000):
    os.chmod(".", 0)
    try: os.chdir("..")
    except OSError: break
""",
        (OK,),
    ),
    Attack(
        15,
        "sparse 1 TB file",
        "with open('big', 'wb') as file: file.truncate(1 << 40)",
        (ERROR,),
        complains("File too large"),
    ),
    Attack(25, "zombies", "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)", (ERROR,)),
    Attack(31, "deep recursion", "def f(): f()\nf()", (ERROR,), complains("RecursionError")),
    Attack(
        31,
        "deeper recursion",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f([x])\nf(1)",
        (ERROR, MEMORY, TIMEOUT),
    ),
    Attack(31, "100 MB of source", "#" + "x" * 100_000_000, (ERROR,), complains("longer than")),
    Attack(31, "nested brackets", "(" * 100_000 + ")" * 100_000, (ERROR, MEMORY)),
    Attack(
        31, "nested brackets of one level too many", "x = " + "[" * 150 + "]" * 150, (OK, ERROR)
    ),
    Attack(31, "operators without end", "x = " + "-" * 300_000 + "1", (ERROR, MEMORY)),
]
