"""An image for stage containers that needs no registry: an empty root and this machine's Python.

Everything in it is seen through read-only mounts; the image itself says which program runs.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tasks.container import HOME

ROOT = Path(__file__).parents[2]
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def mounts() -> tuple[str, ...]:
    """Folders of this machine that hold its Python, our packages and the shared libraries."""
    folders = {"/usr", os.path.realpath(sys.base_prefix), sys.prefix, str(ROOT / "tests")}
    folders |= {str(ROOT / ".sandbox"), str(ROOT / "sandbox_image")}
    folders |= {f"/{name}" for name in _LINKS if _is_real_folder(name)}
    return tuple(sorted(f for f in folders if f == "/usr" or not f.startswith("/usr/")))


def make_image(
    host: str, program: list[str], python: str = sys.executable, **environment: object
) -> str:
    """Make an image that runs a Python of this machine with these arguments; returns its digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, mode in {"etc": 0o755, "tmp": 0o1777, "scratch": 0o777}.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        links = {name: f"/{name}" for name in _LINKS if Path(f"/{name}").is_symlink()}
        links = {name: os.readlink(path) for name, path in links.items()}
        for name, target in {**links, f"{HOME}/.sandbox": str(ROOT / ".sandbox")}.items():
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        cache = Path("/etc/ld.so.cache")
        if cache.exists():
            tar.add(cache, "etc/ld.so.cache")
    changes = [f"ENTRYPOINT {json.dumps([python, *program])}"]
    changes += [f"ENV {name}={value}" for name, value in environment.items()]
    words = [word for change in changes for word in ("--change", change)]
    command = ["docker", "--host", host, "import", *words, "-"]
    done = subprocess.run(
        command, input=packed.getvalue(), capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode().strip()


def _is_real_folder(name: str) -> bool:
    path = Path(f"/{name}")
    return path.is_dir() and not path.is_symlink()
