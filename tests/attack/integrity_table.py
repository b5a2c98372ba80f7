"""Attacks on the verdict, on the supervisor, and on what the next call finds."""

from __future__ import annotations

from attack_table import ERROR, OK, TIMEOUT, Attack, complains, killed_by, prints

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
