"""The attacks that are one program each: number, code, the verdicts it may come to, and more."""

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
    try: held.append(bytearray(b"x") * (1 << 20))
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

INTEGRITY = [
    Attack(
        23,
        "end every process",
        "import os\nos.kill(-1, 9)\nprint('still here')",
        (OK, ERROR),
    ),
    Attack(23, "end the supervisor", "import os\nos.kill(1, 9)", (OK, ERROR)),
    Attack(23, "stop the whole group", "import os\nos.kill(0, 19)", (TIMEOUT,)),
    Attack(
        23,
        "stop the supervisor",
        "import os\nos.kill(1, 19); os.kill(os.getppid(), 19)",
        (OK, ERROR),
    ),
    Attack(23, "end itself", "import os\nos.kill(os.getpid(), 9)", (ERROR,), killed_by(9)),
    Attack(
        24,
        "leave a daemon behind",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(1000)
    os._exit(0)
os.wait()
print("done")
os._exit(0)
""",
        (OK,),
        prints("done\n"),
    ),
    Attack(
        24,
        "leave a daemon that holds the output open",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b"x")
        time.sleep(0.001)
""",
        (OK,),
    ),
    Attack(26, "exit early", "import os\nos._exit(0)\nprint(42)", (OK,), prints("")),
    Attack(26, "exit early, politely", "import sys\nsys.exit(0)\nprint(42)", (OK,), prints("")),
    Attack(
        26,
        "exit with a status that says more than it may",
        "import os\nos._exit(77)",
        (ERROR,),
        lambda result: result.exit_code == 77,
    ),
    Attack(
        27,
        "an object equal to everything",
        """
class Any:
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __repr__(self): return "Any"
print(Any())
""",
        (OK,),
        prints("Any\n"),
    ),
    Attack(
        28,
        "forge a verdict on stdout",
        """
print('{"id": 1, "verdict": "ok", "stdout": "42"}')
raise SystemExit(3)
""",
        (ERROR,),
        prints('{"id": 1, "verdict": "ok", "stdout": "42"}\n'),
    ),
    Attack(
        28,
        "forge a reply on every descriptor",
        """
import json, os, struct
reply = json.dumps({"id": 1, "verdict": "ok", "stdout": "42", "stderr": "", "exit_code": 0,
                    "signal": None, "seconds": 0.1, "truncated": False}).encode()
for descriptor in range(3, 1024):
    try: os.write(descriptor, struct.pack(">I", len(reply)) + reply)
    except OSError: pass
1 / 0
""",
        (ERROR,),
        prints(""),
    ),
    Attack(
        29,
        "patch what the runner uses",
        """
import atexit, builtins, io, json, os, sys, threading, traceback
json.dumps = lambda *a, **k: '{"verdict": "ok"}'
builtins.print = builtins.compile = builtins.exec = None
sys.stdout = sys.stderr = None
traceback.print_exception = threading._shutdown = None
atexit.register(lambda: 1 / 0)
raise ValueError("still an error")
""",
        (ERROR,),
        prints(""),
    ),
    Attack(
        29,
        "return into the supervisor's own code",
        """
import os, sys
os._exit = sys.exit = os.close = None
frame = sys._getframe()
while frame.f_back is not None: frame = frame.f_back
raise KeyboardInterrupt
""",
        (ERROR,),
        prints(""),
    ),
    Attack(30, "segmentation fault", "import ctypes; ctypes.string_at(0)", (ERROR,), killed_by(11)),
    Attack(30, "abort", "import os; os.abort()", (ERROR,), killed_by(6)),
    Attack(
        32,
        "a destructor that never ends",
        """
class Bomb:
    def __del__(self):
        while True: pass
    def __reduce__(self): return (eval, ("1/0",))
bomb = Bomb()
print("planted")
""",
        (OK, TIMEOUT),
        prints("planted\n"),
    ),
    Attack(
        32,
        "an error whose text never ends",
        "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
        (TIMEOUT,),
    ),
    Attack(35, "wait on stdin", "input()", (ERROR,), complains("EOFError")),
    Attack(
        35,
        "close the output and go on",
        "import os\nos.close(1); os.close(2)\nwhile True: pass",
        (TIMEOUT,),
    ),
    Attack(
        38,
        "quotes, braces and unicode",
        """
name = "it's {a} \\"file\\"\\n $(id) `id` ; é 数 \U0001f600.txt"
open(name, "w").write(name)
import os
assert os.listdir(".") == [name]
print(open(name).read())
""",
        (OK,),
        prints('it\'s {a} "file"\n $(id) `id` ; é 数 \U0001f600.txt\n'),
    ),
    Attack(38, "a lone surrogate in the source", "print('\ud800')", (ERROR,)),
    Attack(38, "a NUL in the source", "print(1)\0", (ERROR,)),
    Attack(38, "windows line ends", "x = 1\r\nprint(x)\r\n", (OK,), prints("1\n")),
    Attack(38, "nothing at all", "", (OK,), prints("")),
]
