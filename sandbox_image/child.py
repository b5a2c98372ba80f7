"""The forked process of one call: take the limits, then run the program as `__main__`."""

from __future__ import annotations

import atexit
import gc
import io
import linecache
import os
import resource
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from typing import NoReturn

from sandbox_image import harden
from sandbox_image.processes import Processes

READY, NO_MEMORY = b"R", b"M"
_STATUS = 3
_NAME = "main.py"


@dataclass(frozen=True)
class ChildLimits:
    """What the kernel holds each process of a call to."""

    cpu_seconds: int
    address_space: int  # bytes, the preloaded libraries included
    file_bytes: int
    processes: int
    descriptors: int


def run_child(
    code: str, limits: ChildLimits, processes: Processes, folder: str, own_user: bool,
    stdin: int, out: int, err: int, status: int,
) -> NoReturn:  # fmt: skip
    """Become the program; never returns.

    Writes READY on the status pipe when all limits stand, and NO_MEMORY when the program ends
    by an uncaught MemoryError. The program could write either itself: the supervisor lets the
    first decide only between "ran" and "never ran", and the second only which failure it was.
    """
    exit_code = 1
    try:
        _take_user(processes, own_user)
        _take_limits(limits, folder, stdin, out, err, status)
        os.write(_STATUS, READY)
        exit_code = _run(code)
    finally:
        os._exit(exit_code)


def _take_user(processes: Processes, own_user: bool) -> None:
    os.setsid()
    if own_user:
        user = os.geteuid()
        os.setresuid(user, user, user)
    harden.set_dumpable(True)
    processes.die_first()


def _take_limits(
    limits: ChildLimits, folder: str, stdin: int, out: int, err: int, status: int
) -> None:
    os.chdir(folder)
    os.dup2(stdin, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.dup2(status, _STATUS, inheritable=False)
    os.closerange(_STATUS + 1, 1 << 20)
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1),
        (resource.RLIMIT_AS, limits.address_space, limits.address_space),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes, limits.processes),
        (resource.RLIMIT_NOFILE, limits.descriptors, limits.descriptors),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
    ):
        resource.setrlimit(kind, (soft, hard))
    gc.enable()


def prepare_streams() -> None:
    """Make Python's standard streams what a program expects, once for all forks to come.

    The supervisor itself writes nothing; a child only changes the descriptors underneath.
    """
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        # Line by line, so that what was printed before a time-out is not lost.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.argv[:] = [_NAME]
    sys.path.insert(0, "")


def _run(code: str) -> int:
    """Run the program as a fresh interpreter would; returns its exit status."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exit_code = 0
    try:
        try:
            exec(compile(code, _NAME, "exec", dont_inherit=True), main.__dict__)
        finally:
            if threading.active_count() > 1:
                threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
    except SystemExit as end:
        exit_code = _exit_status(end.code)
    except BaseException as failure:
        exit_code = 1
        if isinstance(failure, MemoryError):
            os.write(_STATUS, NO_MEMORY)
        _report(failure, code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            exit_code = exit_code or 120  # as CPython does
    return exit_code


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(failure: BaseException, code: str) -> None:
    """The traceback on stderr, without the frames of this file."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        linecache.cache[_NAME] = (len(code), None, code.splitlines(keepends=True), _NAME)
        traceback.print_exception(type(failure), failure, trace)
    except BaseException:
        os.write(2, b"the traceback could not be printed\n")
