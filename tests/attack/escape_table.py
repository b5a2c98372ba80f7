"""Attacks that try to reach out of the sandbox, or into another call."""

from __future__ import annotations

from attack_table import ERROR, OK, Attack, complains, prints

_SYSCALLS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
calls = {"mount": 165, "umount2": 166, "ptrace": 101, "unshare": 272, "setns": 308, "bpf": 321,
         "keyctl": 250, "add_key": 248, "perf_event_open": 298, "userfaultfd": 323,
         "io_uring_setup": 425, "chroot": 161, "pivot_root": 155, "init_module": 175,
         "process_vm_readv": 310, "open_by_handle_at": 304, "shmget": 29, "msgget": 68,
         "semget": 64, "mq_open": 240, "memfd_secret": 447, "kexec_load": 246, "reboot": 169,
         "swapon": 167, "sethostname": 170, "settimeofday": 164, "acct": 163, "modify_ldt": 154,
         "clone3": 435, "fsopen": 430, "unknown": 500}
for name, number in calls.items():
    ctypes.set_errno(0)
    got = libc.syscall(number, 0x10000000, 0, 0, 0, 0, 0)
    if got != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, got, ctypes.get_errno())
for flags in (0x10000000, 0x20000000, 0x40000000, 0x00020000):
    ctypes.set_errno(0)
    if libc.syscall(56, flags | 17, 0, 0, 0, 0) != -1:
        print("clone", hex(flags))
"""

_WRITE_EVERYWHERE = """
import os
wrote = []
for folder, inside, _ in os.walk("/"):
    if folder.count("/") > 2 or folder.startswith(("/proc", "/sys", "/scratch")):
        inside.clear()
        continue
    try:
        open(folder + "/probe", "w").close()
        wrote.append(folder)
    except OSError:
        pass
for place in ("/proc", "/sys", "/proc/sys/kernel", "/sys/fs/cgroup", "/dev/mqueue"):
    try:
        open(place + "/probe", "w").close()
        wrote.append(place)
    except OSError:
        pass
print([place for place in wrote if place != "/dev/mqueue"])
"""

_DESCRIPTORS = """
import os, stat
for descriptor in range(3, 2048):
    try: mode = os.fstat(descriptor).st_mode
    except OSError: continue
    print(descriptor, stat.S_ISFIFO(mode))
"""

_PRIVILEGE = """
import ctypes, os, subprocess
print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))
found = 0
for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/bin"):
    for name in os.listdir(folder):
        path = folder + "/" + name
        if os.path.isfile(path) and os.stat(path).st_mode & 0o4000:
            found += 1
ids = subprocess.run(["/usr/bin/id", "-u"], capture_output=True, text=True).stdout.strip()
print(ids == str(os.getuid()) != "0")
try: os.setuid(0); print("root")
except OSError: pass
try: os.setgroups([0]); print("groups")
except OSError: pass
"""

_SECRETS = """
import os
for path in ("/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/root/etc/passwd",
             "/proc/1/fd/3", "/proc/kcore", "/proc/sysrq-trigger", "/etc/shadow"):
    try: open(path, "rb").read(1); print("read", path)
    except OSError: pass
seen = [n for n in os.listdir("/proc") if n.isdecimal()] if os.path.isdir("/proc") else []
print(sorted(set(seen) - {"1", str(os.getpid())}))
"""

_SYMLINKS = """
import os
os.symlink("/etc/passwd", "out"); os.symlink("..", "up"); os.symlink("/", "root")
os.symlink("/opt", "../opt"); os.mkdir("d"); os.symlink("../../..", "d/up")
print(len(os.listdir(".")))
"""


def _refused(code: str) -> str:
    return f"import socket\n{code}\nprint('reached')"


ESCAPES = [
    Attack(16, "TCP", _refused("socket.create_connection(('1.1.1.1', 80), 2)"), (ERROR,)),
    Attack(16, "UDP", _refused(
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53))"),
        (ERROR,)),
    Attack(16, "DNS", _refused("socket.gethostbyname('example.com')"), (ERROR,)),
    Attack(16, "metadata", _refused(
        "import urllib.request; urllib.request.urlopen('http://169.254.169.254/', timeout=2)"),
        (ERROR,)),
    Attack(16, "raw packets", _refused("socket.socket(17, 3, 3)"), (ERROR,)),
    Attack(16, "netlink", _refused("socket.if_nameindex()"), (ERROR,)),
    Attack(18, "the supervisor's socket", _refused(
        "socket.socket(socket.AF_UNIX).connect('/run/sandbox/socket')"), (ERROR,),
        complains("Operation not permitted")),
    Attack(18, "a pair turned to the supervisor", _refused(
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].connect('/run/sandbox/socket')"),
        (ERROR,), complains("Operation not permitted")),
    Attack(18, "an abstract name", _refused(
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].bind('\\0meet')"),
        (ERROR,), complains("Operation not permitted")),
    Attack(18, "docker.sock", "import os\nprint([p for p in ('/var/run/docker.sock', "
        "'/run/docker.sock', '/run/containerd') if os.path.exists(p)])", (OK,), prints("[]\n")),
    Attack(19, "write everywhere", _WRITE_EVERYWHERE, (OK,), prints("[]\n")),
    Attack(19, "write the supervisor", "open('/opt/anchorloop/sandbox_image/call.py', 'a')",
        (ERROR,)),
    Attack(19, "delete the library", "import os, numpy; os.unlink(numpy.__file__)", (ERROR,)),
    Attack(20, "links that lead out", _SYMLINKS, (OK,), prints("4\n")),
    Attack(21, "other processes' secrets", _SECRETS, (OK,), prints("[]\n")),
    Attack(22, "the environment", "import os\nprint(sorted(os.environ.items()))", (OK,), prints(
        "[('OMP_NUM_THREADS', '1'), ('OPENBLAS_NUM_THREADS', '1'), ('PYTHONHASHSEED', '0')]\n")),
    Attack(22, "the environment, through C", "import ctypes\n"
        "get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p\n"
        "print([get(n) for n in (b'HOME', b'PATH', b'PYTHONPATH', b'HOSTNAME')])", (OK,), prints(
        "[None, None, None, None]\n")),
    Attack(33, "forbidden system calls", _SYSCALLS, (OK,), prints("")),
    Attack(34, "inherited descriptors", _DESCRIPTORS, (OK,), prints("3 True\n")),
    Attack(34, "privileges", _PRIVILEGE, (OK,), prints("1\nTrue\n")),
    Attack(34, "trace the supervisor", "import ctypes\n"
        "print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))", (OK,), prints("-1\n")),
]  # fmt: skip
