"""A Docker engine of the tests' own, and the sandbox image in it.

Its images stay in `.anchorloop/docker`, so that they are built once; everything else goes. Where
no engine can be started the tests that ask for one fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_DATA = PROJECT / ".anchorloop" / "docker"
_START_SECONDS, _BUILD_SECONDS = 60, 900


@contextlib.contextmanager
def private_engine(data: Path = _DATA) -> Iterator[str]:
    """Start dockerd without network, yield its DOCKER_HOST, and end exactly what was started.

    `data` keeps its images and containers; one engine at a time may use it.
    """
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        raise RuntimeError("no dockerd to start: install Docker (Debian: docker.io)")
    data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="anchorloop-docker-"))
    host = f"unix://{folder}/socket"
    log = (folder / "log").open("wb")
    engine = subprocess.Popen(
        ["dockerd", "--data-root", str(data), "--exec-root", str(folder / "exec"),
         "--pidfile", str(folder / "pid"), "--host", host, "--iptables=false", "--bridge=none"],
        stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_SECONDS
        while subprocess.run(["docker", "--host", host, "version"], capture_output=True).returncode:
            if engine.poll() is not None or time.monotonic() > deadline:
                words = (folder / "log").read_text(errors="replace")[-1000:]
                raise RuntimeError(f"dockerd did not start: {words}")
            time.sleep(0.2)
        yield host
    finally:
        engine.terminate()
        try:
            engine.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(engine.pid, signal.SIGKILL)
            engine.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def sandbox_image() -> None:
    """Build `anchorloop-sandbox` by the recipe that needs no image registry."""
    recipe = PROJECT / "sandbox_image" / "build_without_registry.sh"
    subprocess.run([str(recipe)], check=True, timeout=_BUILD_SECONDS)
