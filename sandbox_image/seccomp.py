"""The system calls a program in the sandbox may not make, as a seccomp filter for x86-64 Linux.

The namespaces already keep the network, other processes and the file system away. The filter
closes what they leave: ways for two calls to meet (sockets, System V and POSIX queues, key rings),
memory that no limit counts (memfd, shared anonymous maps, io_uring), and kernel surface
that no mathematics needs. The filter stays with every descendant and cannot be taken off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

REFUSED: dict[str, int] = {
    # two calls must not meet, and nothing is to be reached
    "socket": 41, "connect": 42, "bind": 49, "listen": 50,
    "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67,
    "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220,
    "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
    "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243,
    "mq_notify": 244, "mq_getsetattr": 245,
    "add_key": 248, "request_key": 249, "keyctl": 250,
    # memory outside the counted
    "memfd_create": 319, "memfd_secret": 447, "userfaultfd": 323, "vmsplice": 278,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    # other processes
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "pidfd_getfd": 438, "process_madvise": 440, "process_mrelease": 448,
    "migrate_pages": 256, "move_pages": 279,
    # namespaces and mounts
    "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "fanotify_init": 300, "sethostname": 170, "setdomainname": 171,
    # the kernel itself
    "bpf": 321, "perf_event_open": 298, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "reboot": 169,
    "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "quotactl_fd": 443,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "personality": 135, "syslog": 103,
    "uselib": 134, "sysfs": 139, "vhangup": 153, "lookup_dcookie": 212,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305,
}  # fmt: skip

SIGNALS: dict[str, int] = {"kill": 62, "tkill": 200}
"""Refused as well where no namespace holds a signal back: kill(-1) would end a user's session."""

_CLONE, _CLONE3, _MMAP = 56, 435, 9
_FIRST_UNKNOWN = 451  # numbers from here on did not exist when the list was written
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000 | 0x00000080  # every CLONE_NEW* flag that clone() takes
_SHARED_ANONYMOUS = 0x01 | 0x20

_AUDIT_ARCH_X86_64 = 0xC000003E
_LOAD, _JEQ, _JGE, _AND, _RET = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR, _ARCH = 0, 4  # offsets in struct seccomp_data; argument i starts at 16 + 8 i

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def program(refused: Iterable[int]) -> bytes:
    """The filter's instructions, 8 bytes each (struct sock_filter)."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH_X86_64),
        (_RET, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
        (_JGE, 0, 1, _X32),
        (_RET, 0, 0, _KILL),
        (_JGE, 0, 1, _FIRST_UNKNOWN),
        (_RET, 0, 0, absent),
        # clone3 hides its flags behind a pointer; "absent" makes the C library use clone.
        (_JEQ, 0, 1, _CLONE3),
        (_RET, 0, 0, absent),
        # clone: no new namespace
        (_JEQ, 0, 5, _CLONE),
        (_LOAD, 0, 0, 16),
        (_AND, 0, 0, _NEW_NAMESPACES),
        (_JEQ, 0, 1, 0),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, refuse),
        # mmap: no memory that is shared and has no file
        (_JEQ, 0, 5, _MMAP),
        (_LOAD, 0, 0, 16 + 8 * 3),
        (_AND, 0, 0, _SHARED_ANONYMOUS),
        (_JEQ, 1, 0, _SHARED_ANONYMOUS),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, refuse),
    ]
    for number in sorted(refused):
        code += [(_JEQ, 0, 1, number), (_RET, 0, 0, refuse)]
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(with_signals: bool) -> None:
    """Put the filter on this process for good; `with_signals` refuses kill() too.

    Needs "no new privileges" first. Raises OSError when the kernel refuses the filter.
    """
    refused = REFUSED | SIGNALS if with_signals else REFUSED
    instructions = program(refused.values())
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    fprog = _SockFprog(len(instructions) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(fprog), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refused the seccomp filter: {os.strerror(number)}")
