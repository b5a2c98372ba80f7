"""How often the kernel has ended a process of our control group for want of memory."""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def oom_kills() -> int:
    """The kernel's count for this process's control group (children inherit it), 0 if unknown.

    Reads ``memory.events`` of cgroup v2 or ``memory.oom_control`` of v1; in a container, whose
    group's path leads nowhere, those of the root that it sees.
    """
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = _ROOT, "memory.events"
        elif "memory" in controllers.split(","):
            base, name = _ROOT / "memory", "memory.oom_control"
        else:
            continue
        for folder in (base / path.lstrip("/"), base):
            for entry in _lines(folder / name):
                key, _, value = entry.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
