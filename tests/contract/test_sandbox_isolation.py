"""Which level is chosen, what is refused, and what outlives nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from training.sandbox import isolation, worker
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import Launch, choose
from training.sandbox.selftest import self_test
from training.sandbox.settings import SandboxSettings

SMALL = SandboxSettings(isolation="bubblewrap", workers=1, wall_seconds=5, memory_mb=256)


async def test_a_broken_promise_stops_the_sandbox_from_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = isolation.bubblewrap_launch

    def leaky(folder: Path) -> Launch:
        launch = real(folder)
        place = launch.command.index("--remount-ro")
        shown = ["--perms", "0777", "--tmpfs", "/mnt"]
        command = [*launch.command[:place], *shown, *launch.command[place:]]
        return Launch(command, launch.container, launch.maps_users)

    monkeypatch.setattr(worker, "bubblewrap_launch", leaky)
    with pytest.raises(SandboxError, match="sandbox/files: broken"):
        async with Sandbox(SMALL):
            pytest.fail("a sandbox with a writable folder opened")
    broken = [check for check in self_test(SMALL) if not check.ok]
    assert [check.name for check in broken] == ["sandbox/files"]
    assert broken[0].remedy


def test_self_test_passes_here() -> None:
    checks = self_test(SMALL)
    assert all(check.ok for check in checks), [check for check in checks if not check.ok]
    assert len(checks) == 11


def test_no_isolation_is_a_refusal_with_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(isolation, "ENVIRONMENT", tmp_path / ".sandbox")
    with pytest.raises(SandboxError, match=r"install Docker.*make setup"):
        choose(SandboxSettings())
    (check,) = self_test(SandboxSettings())
    assert not check.ok
    assert check.remedy


def test_unsafe_is_never_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "container_problem", lambda image: None)
    assert choose(SandboxSettings()) == "container"
    monkeypatch.setattr(isolation, "container_problem", lambda image: "container: none")
    assert choose(SandboxSettings()) == "bubblewrap"
    monkeypatch.setattr(isolation, "bubblewrap_problem", lambda: "bubblewrap: none")
    with pytest.raises(SandboxError, match="no isolation"):
        choose(SandboxSettings())
    assert choose(SandboxSettings(isolation="unsafe")) == "unsafe"


def test_a_kernel_that_forbids_namespaces_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1"
    )
    refusing.chmod(0o755)
    monkeypatch.setattr(isolation, "bubblewrap", lambda: str(refusing))
    problem = isolation.bubblewrap_problem()
    assert problem is not None
    assert "No permissions" in problem
    assert "sysctl" in problem or "container" in problem


UNSAFE = """
import asyncio, os
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

async def main():
    async with Sandbox(SandboxSettings(isolation="unsafe", workers=1, wall_seconds=5)) as sandbox:
        print(sandbox.isolation)
        for code in ("import os; os.kill(-1, 9)", "import os; os.killpg(0, 9)",
                     f"import os; os.kill({os.getpid()}, 9)", "print(6 * 7)"):
            result = await sandbox.run(code)
            print(result.verdict, result.stdout.strip(), "PermissionError" in result.stderr)

asyncio.run(main())
"""


def test_unsafe_cannot_signal_what_its_user_runs() -> None:
    """Run in a PID namespace of its own, so that a failure ends this test and nothing else."""
    bwrap = isolation.bubblewrap()
    assert bwrap is not None
    command = [bwrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid"]
    command += ["--proc", "/proc", "--die-with-parent", sys.executable, "-c", UNSAFE]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=isolation.PROJECT
    )
    assert done.stdout.splitlines() == ["unsafe", *["error  True"] * 3, "ok 42 False"], done.stderr


KILLED = """
import asyncio
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

async def main():
    async with Sandbox(SandboxSettings(isolation="bubblewrap", workers=1)) as sandbox:
        (worker,) = sandbox._workers
        print(worker._process.pid, flush=True)
        await sandbox.run("while True: pass")

asyncio.run(main())
"""


def test_a_killed_client_leaves_no_supervisor() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, cwd=isolation.PROJECT
    ) as owner:
        assert owner.stdout is not None
        outer = psutil.Process(int(owner.stdout.readline()))
        family = [outer, *outer.children(recursive=True)]
        owner.kill()
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert len(gone) >= 2
