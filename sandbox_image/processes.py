"""The processes of a call, as the supervisor sees and ends them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_CHILD_SUBREAPER = 36


class Processes:
    """Everything but the supervisor itself, which is process 1 of its own PID namespace.

    Open it before /proc is hidden. Raises OSError when there is no /proc to watch memory with.
    """

    def __init__(self) -> None:
        if os.getpid() != 1:
            raise OSError("the supervisor is not process 1 of a PID namespace of its own")
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._base = self._anonymous("self") or 0

    def present(self) -> list[str]:
        """Process numbers of the call."""
        return [name for name in os.listdir(self._proc) if name.isdecimal() and name != "1"]

    def kill(self) -> None:
        """End every process of the call, however deep or daemonised; returns when all are gone.

        One kill(-1) is atomic in the kernel against a process that forks at that moment.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        self._reap()

    def memory(self, limit: int) -> int:
        """Bytes the call holds, beyond what the supervisor preloaded.

        The cheap count takes a page that two processes share twice; only when it is above
        `limit` is the exact one made.
        """
        present = self.present()
        total = sum(self._anonymous(name) or 0 for name in present) - self._base
        if total > limit and len(present) > 1:
            exact = [self._proportional(name) for name in present]
            total = sum(size for size in exact if size is not None)
        return total

    def die_first(self) -> None:
        """Called in the child: where memory runs out, the kernel takes it, not the supervisor."""
        descriptor = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self._proc)
        try:
            os.write(descriptor, b"1000")
        finally:
            os.close(descriptor)

    def address_space(self) -> int:
        """Bytes of address space the preloaded supervisor takes."""
        return int(self._read("self/statm").split()[0]) * _PAGE

    @staticmethod
    def _reap() -> None:
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _anonymous(self, name: str) -> int | None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            _, resident, shared = self._read(f"{name}/statm").split()[:3]
            return (int(resident) - int(shared)) * _PAGE
        return None  # it has just ended

    def _proportional(self, name: str) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._read(f"{name}/smaps_rollup").splitlines():
                if line.startswith("Pss_Anon:"):
                    return int(line.split()[1]) * 1024
        return self._anonymous(name)

    def _read(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(descriptor, 4096).decode("ascii", "replace")
        finally:
            os.close(descriptor)


class UnsafeProcesses(Processes):
    """For the explicit level `unsafe`: no namespace, so only descendants are known and ended."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the supervisor cannot adopt orphans")
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._base = self._anonymous("self") or 0

    def present(self) -> list[str]:
        parents: dict[str, str] = {}
        for name in os.listdir(self._proc):
            if name.isdecimal():
                with contextlib.suppress(OSError, IndexError):
                    parents[name] = self._read(f"{name}/stat").rpartition(")")[2].split()[1]
        found, frontier = set[str](), {str(os.getpid())}
        while frontier:
            frontier = {name for name, parent in parents.items() if parent in frontier} - found
            found |= frontier
        return sorted(found)

    def kill(self) -> None:
        while present := self.present():
            for name in present:
                with contextlib.suppress(ProcessLookupError):
                    handle = os.pidfd_open(int(name))
                    try:
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                    finally:
                        os.close(handle)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
