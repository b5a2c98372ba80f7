"""How the supervisor gives up what it may do, before it serves its first call."""

from __future__ import annotations

import ctypes
import os

from sandbox_image import seccomp

PROGRAM_ID = 65533
"""User and group of the programs, unless the client asks for another."""
KEEPER_ID = 65532
"""Real user of the supervisor once it serves: a program cannot signal or trace it."""

SCRATCH_BYTES = 64 * 1024 * 1024
SCRATCH_FILES = 8192

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 2, 4, 8, 32
_MNT_DETACH = 2
_CAP_SYS_ADMIN = 21
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(outcome: int, what: str) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def set_dumpable(on: bool) -> None:
    """Whether a process of the same user may read this process's memory."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(on), 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def own_mounts(scratch: str) -> None:
    """Under bubblewrap: size the scratch folder, and take /proc out of the programs' sight.

    Without CAP_SYS_ADMIN, as in the container, there is nothing to do: the container's own
    options size its scratch folder. A descriptor of /proc opened before stays usable.
    """
    if not _has_capability(_CAP_SYS_ADMIN):
        return
    sizes = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES}".encode()
    flags = _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(_libc.mount(b"tmpfs", scratch.encode(), b"tmpfs", flags, sizes), f"remount {scratch}")
    _check(_libc.umount2(b"/proc", _MNT_DETACH), "unmount /proc")


def become_keeper(program_id: int) -> bool:
    """Leave root for the keeper's identity; True when programs get a user of their own.

    The supervisor's real and saved user become the keeper's and its effective user the
    programs': it can end and clean up after a program, and no program can signal it. A
    supervisor that is not root shares its user with the programs, and is safe from them as
    process 1 of its namespace.
    """
    if os.geteuid() != 0:
        return False
    os.setgroups([])
    os.setresgid(program_id, program_id, program_id)
    os.setresuid(KEEPER_ID, program_id, KEEPER_ID)
    return True


def seal(isolated: bool) -> None:
    """Drop every capability, forbid new privileges and install the system call filter.

    Without a PID namespace around it (`isolated` false) a program may not signal at all.
    """
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):  # fails harmlessly where the process may not, or none is
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "drop the capabilities")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    set_dumpable(False)
    seccomp.install(with_signals=not isolated)


def _has_capability(number: int) -> bool:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(header, data), "read the capabilities")
    return bool(data[3 * (number // 32)] & (1 << (number % 32)))
