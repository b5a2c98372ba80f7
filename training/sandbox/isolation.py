"""How a supervisor is started at each level of isolation, and which levels are there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from training.sandbox.settings import Isolation, SandboxSettings

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENT = PROJECT / ".sandbox"
"""The virtual environment of untrusted code under bubblewrap: the scientific stack alone."""

BESIDE = "ANCHORLOOP_SANDBOX_FOLDER"
"""Set in a stage's container that has its supervisors in containers beside it."""

PROGRAM_ID = 65533
KEEPER_ID = 65532
"""The users of programs and supervisor; the same two numbers as in `sandbox_image.harden`."""

_HOME = "/opt/anchorloop"
_ARGUMENTS = ["-s", "-P", "-B", "-m", "sandbox_image"]
_CONTAINER_IDS = 1_000_000_000
_CONTAINER_EXTRA_MB = 512  # beside a call's own memory: the supervisor, scratch, page tables


def source_hash() -> str:
    """What `sandbox_image.supervisor` calls itself; an image built from other files differs."""
    digest = hashlib.sha256()
    for path in sorted((PROJECT / "sandbox_image").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class SandboxError(Exception):
    """The sandbox cannot promise isolation, or fails too often; nothing may run."""


@dataclass(frozen=True)
class Launch:
    """A command that starts one supervisor, and how its user namespace is mapped."""

    command: list[str]
    container: str | None = None
    maps_users: bool = False
    """Whether the client must write the user map (it is root, and hands bwrap two more ids)."""


def choose(settings: SandboxSettings) -> Isolation:
    """The level to use; raises SandboxError when the asked-for one, or any, is not there."""
    if settings.isolation == "unsafe":
        _require_environment()
        return "unsafe"
    if beside() is not None:
        return "container"
    reasons = []
    if settings.isolation in ("auto", "container"):
        problem = container_problem(settings.image)
        if problem is None:
            return "container"
        reasons.append(problem)
    if settings.isolation in ("auto", "bubblewrap"):
        problem = bubblewrap_problem()
        if problem is None:
            return "bubblewrap"
        reasons.append(problem)
    raise SandboxError("no isolation for the Executor's code: " + "; ".join(reasons))


def container_problem(image: str) -> str | None:
    """Why the container level cannot be used, with the remedy; None when it can."""
    docker = shutil.which("docker")
    if docker is None:
        return "container: no docker command (install Docker)"
    if _fails([docker, "version", "--format", "{{.Server.Version}}"]):
        return "container: no Docker engine answers (start it, or set DOCKER_HOST)"
    if _fails([docker, "image", "inspect", image]):
        return f"container: image {image!r} is missing (build it as sandbox_image/README.md says)"
    return None


def bubblewrap_problem() -> str | None:
    """Why the bubblewrap level cannot be used, with the remedy; None when it can."""
    bwrap = bubblewrap()
    if bwrap is None:
        return "bubblewrap: no bwrap command (run make setup, or install the bubblewrap package)"
    try:
        _require_environment()
    except SandboxError as problem:
        return f"bubblewrap: {problem}"
    trial = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    trial += ["--as-pid-1", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return None
    return f"bubblewrap: {done.stderr.strip()[:200]} ({_namespace_remedy()})"


def _namespace_remedy() -> str:
    """What to change where the kernel or a container forbids new namespaces."""
    for name, blocking, wanted in (
        ("kernel/unprivileged_userns_clone", 0, 1),
        ("kernel/apparmor_restrict_unprivileged_userns", 1, 0),
        ("user/max_user_namespaces", 0, 10_000),
    ):
        path = Path("/proc/sys") / name
        if path.exists() and int(path.read_text()) == blocking:
            return f"as root: sysctl -w {name.replace('/', '.')}={wanted}"
    return "inside a container, start it with user namespaces and an unmasked /proc allowed"


def bubblewrap() -> str | None:
    """Path of bwrap: the system's, else the one of `.sandbox`."""
    own = ENVIRONMENT / "bin" / "bwrap"
    return shutil.which("bwrap") or (str(own) if own.exists() else None)


def bubblewrap_launch(socket_folder: Path) -> Launch:
    """The bwrap command of one supervisor; the socket is `socket_folder / "socket"`."""
    bwrap = bubblewrap()
    assert bwrap is not None, "choose() has found it"
    root = os.geteuid() == 0 and _ids_mapped()
    capabilities = ["CAP_SYS_ADMIN"] + (["CAP_SETUID", "CAP_SETGID"] if root else [])
    identity = "0" if root else str(PROGRAM_ID)
    python = ENVIRONMENT / "bin" / "python"
    base = Path(os.path.realpath(python)).parents[1]
    command = [
        bwrap,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--as-pid-1", "--die-with-parent", "--new-session"),
        "--clearenv",
        *("--uid", identity, "--gid", identity, "--cap-drop", "ALL"),
        *(word for name in capabilities for word in ("--cap-add", name)),
        *("--hostname", "sandbox"),
        *(word for item in _constants(_HOME).items() for word in ("--setenv", *item)),
        *_shown(base, socket_folder),
        *("--proc", "/proc", "--perms", "0777", "--tmpfs", "/scratch", "--remount-ro", "/"),
        *("--chdir", "/"),
        *("/opt/python/bin/python", *_ARGUMENTS),
    ]
    return Launch(command, maps_users=root)


def container_launch(settings: SandboxSettings, socket_folder: Path, name: str) -> Launch:
    """The docker command of one supervisor, in a container of its own called `name`."""
    options = ["docker", "run", "--rm", "--name", name, "--label", "anchorloop=sandbox"]
    return Launch([*options, *container_words(settings, socket_folder)], container=name)


def container_words(settings: SandboxSettings, socket_folder: Path) -> list[str]:
    """What seals a supervisor's container, its image and its arguments: the end of `docker run`."""
    memory = settings.memory_mb + _CONTAINER_EXTRA_MB
    return [
        *("--network", "none", "--ipc", "none", "--read-only", "--log-driver", "none"),
        *("--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID", "--cap-add", "KILL"),
        *("--security-opt", "no-new-privileges", "--pids-limit", "64", "--pull", "never"),
        *("--memory", f"{memory}m", "--memory-swap", f"{memory}m", "--hostname", "sandbox"),
        *("--ulimit", "core=0", "--workdir", "/", "--user", "0:0"),
        *("--tmpfs", "/scratch:rw,nosuid,nodev,noexec,size=64m,nr_inodes=8192,mode=0777"),
        *("--volume", f"{socket_folder}:/run/sandbox:ro"),
        settings.image,
        # The kernel counts a user's processes over all containers, so each gets its own user.
        *("--program-id", str(_CONTAINER_IDS + uuid.uuid4().int % _CONTAINER_IDS)),
    ]


def beside() -> Path | None:
    """The folder in which supervisors beside this stage's own container look for their clients."""
    folder = os.environ.get(BESIDE)
    return Path(folder) if folder else None


def unsafe_launch(socket_folder: Path) -> Launch:
    """The supervisor as a plain process: limits and the system call filter, no isolation."""
    constants = [f"{name}={value}" for name, value in _constants(str(PROJECT)).items()]
    python = [str(ENVIRONMENT / "bin" / "python"), *_ARGUMENTS]
    options = ["--unsafe", "--socket", str(socket_folder / "socket")]
    return Launch(["env", "-i", *constants, *python, *options])


def _constants(home: str) -> dict[str, str]:
    """The environment a supervisor starts with; of it, programs see the thread counts only."""
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",  # the order of a set of strings is part of what a program prints
        "PYTHONPATH": home,
    }


def _shown(base: Path, socket_folder: Path) -> list[str]:
    """Options for all that is seen of the host: libraries, Python, the supervisor, the socket."""
    options, binds = ["--ro-bind", "/usr", "/usr"], {}
    for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin"):
        path = Path("/") / name
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            binds[str(path)] = path
    if not base.is_relative_to("/usr"):
        binds[str(base)] = base
    if (cache := Path("/etc/ld.so.cache")).exists():
        binds[str(cache)] = cache
    binds["/opt/python"] = ENVIRONMENT
    binds[f"{_HOME}/sandbox_image"] = PROJECT / "sandbox_image"
    binds["/run/sandbox"] = socket_folder
    devices = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    # bwrap makes missing parents that only their owner may enter, and a program is another user.
    parents = {str(up) for place in [*binds, *devices] for up in Path(place).parents} - {"/"}
    for parent in sorted(parents):
        if not Path(parent).is_relative_to("/usr"):
            options += ["--perms", "0755", "--dir", parent]
    for place, source in binds.items():
        options += ["--ro-bind", str(source), place]
    for device in devices:
        options += ["--dev-bind", device, device]
    return options


def _require_environment() -> None:
    if not (ENVIRONMENT / "bin" / "python").exists():
        raise SandboxError(f"{ENVIRONMENT.name} is missing (run make setup)")


def _ids_mapped() -> bool:
    """Whether the supervisor's two ids exist in this process's own user namespace."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= KEEPER_ID and first + count > PROGRAM_ID:
            return True
    return False


def _fails(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        return True
