"""The pool: what it retries, what it restarts, when it gives up, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from training.sandbox import client, isolation, worker
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import Launch, choose, source_hash
from training.sandbox.selftest import self_test
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import Verdict
from training.sandbox.worker import Worker, WorkerLost

SCRIPTED = Path(__file__).with_name("scripted_supervisor.py")
GOOD = {
    "verdict": "ok", "stdout": "42\n", "stderr": "", "exit_code": 0, "signal": None,
    "seconds": 0.01, "truncated": False,
}  # fmt: skip


def settings(**values: Any) -> SandboxSettings:
    return SandboxSettings(
        **{"isolation": "bubblewrap", "workers": 1, "wall_seconds": 5, "memory_mb": 256} | values
    )


def supervisor_pid(sandbox: Sandbox) -> int:
    (one, *_) = sandbox._workers
    assert one._process is not None
    return int(psutil.Process(one._process.pid).children()[0].pid)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let workers start a scripted supervisor; the self-test, which it would fail, is left out."""

    def script(reply: Any) -> None:
        text = reply if isinstance(reply, str) else json.dumps(reply)

        def launch(folder: Path) -> Launch:
            return Launch([sys.executable, str(SCRIPTED), f"{folder}/socket", source_hash(), text])

        async def prove(*_: Any) -> list[Any]:
            return []

        monkeypatch.setattr(worker, "bubblewrap_launch", launch)
        monkeypatch.setattr(worker, "_GRACE_SECONDS", 0.5)
        monkeypatch.setattr(client, "prove", prove)

    return script


async def test_a_supervisor_that_dies_in_a_call_costs_a_retry_and_no_verdict() -> None:
    async with Sandbox(settings()) as sandbox:
        call = asyncio.create_task(sandbox.run("import time; time.sleep(1); print('done')"))
        await asyncio.sleep(0.3)
        os.kill(supervisor_pid(sandbox), signal.SIGKILL)
        result = await call
        assert (result.verdict, result.stdout) == (Verdict.OK, "done\n")
        metrics = sandbox.metrics()
        assert (metrics["sandbox/restarts"], metrics["sandbox/retries"]) == (1, 1)
        assert metrics["sandbox/infra"] == 0


async def test_a_wedged_supervisor_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 1.0)
    async with Sandbox(settings(wall_seconds=1)) as sandbox:
        wedged = supervisor_pid(sandbox)
        os.kill(wedged, signal.SIGSTOP)
        result = await sandbox.run("print('after')")
        assert (result.verdict, result.stdout) == (Verdict.OK, "after\n")
        assert sandbox.metrics()["sandbox/restarts"] == 1
        assert not psutil.pid_exists(wedged) or supervisor_pid(sandbox) != wedged


async def test_the_programs_own_failure_is_never_retried() -> None:
    async with Sandbox(settings(wall_seconds=0.5)) as sandbox:
        for code in ("1/0", "while True: pass", "import os; os.abort()", "print('x' * 10**7)"):
            assert (await sandbox.run(code)).verdict not in (Verdict.OK, Verdict.INFRA)
        assert sandbox.metrics()["sandbox/retries"] == 0
        assert sandbox.metrics()["sandbox/restarts"] == 0


async def test_supervisors_that_time_out_on_everything_are_found_out(scripted: Any) -> None:
    """The canary after a time-out comes back as a time-out too: that is infra, not the code."""
    scripted(GOOD | {"verdict": "timeout", "exit_code": None, "signal": 9})
    async with Sandbox(settings(infra_share_limit=1)) as sandbox:
        assert (await sandbox.run("print(1)")).verdict is Verdict.INFRA
        assert sandbox.metrics()["sandbox/canaries"] == 3


async def test_an_idle_supervisor_runs_a_canary_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sandbox(settings()) as sandbox:
        monkeypatch.setattr(client, "CANARY_AFTER_SECONDS", 0.0)
        assert (await sandbox.run("print(1)")).stdout == "1\n"
        assert sandbox.metrics()["sandbox/canaries"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        "hang", "close", "garbage", "huge", "list", {}, GOOD | {"verdict": "fine"},
        GOOD | {"stdout": 42}, GOOD | {"seconds": "1"}, GOOD | {"exit_code": "0"},
        GOOD | {"truncated": None}, GOOD | {"id": 999},
    ],
    ids=str,
)  # fmt: skip
async def test_a_wrong_reply_is_infra_after_two_retries(scripted: Any, reply: Any) -> None:
    scripted(reply)
    async with Sandbox(settings(wall_seconds=0.2, infra_share_limit=1)) as sandbox:
        assert (await sandbox.run("print(1)")).verdict is Verdict.INFRA
        assert sandbox.metrics()["sandbox/retries"] == client.RETRIES


async def test_above_two_percent_infra_the_sandbox_gives_up(scripted: Any) -> None:
    scripted(GOOD | {"verdict": "infra"})
    sandbox = await Sandbox(settings()).__aenter__()
    try:
        for _ in range(2):
            assert (await sandbox.run("print(1)")).verdict is Verdict.INFRA
        with pytest.raises(SandboxError, match=r"3 of 3 .* more than 2%"):
            await sandbox.run("print(1)")
    finally:
        await sandbox.__aexit__(SandboxError, None, None)


async def test_a_short_stage_is_judged_when_it_closes(scripted: Any) -> None:
    scripted(GOOD | {"verdict": "infra"})
    with pytest.raises(SandboxError, match="1 of 1"):
        async with Sandbox(settings()) as sandbox:
            await sandbox.run("print(1)")


async def test_when_no_supervisor_can_start_again_calls_are_infra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine or bwrap went away under a running stage."""
    async with Sandbox(settings(infra_share_limit=1)) as sandbox:
        monkeypatch.setattr(worker, "bubblewrap_launch", lambda folder: Launch(["false"]))
        os.kill(supervisor_pid(sandbox), signal.SIGKILL)
        assert (await sandbox.run("print(1)")).verdict is Verdict.INFRA


async def test_back_pressure_and_waiting_time() -> None:
    async with Sandbox(settings(workers=2)) as sandbox:
        code = "import time; time.sleep(0.2); print({})"
        results = await asyncio.gather(*(sandbox.run(code.format(n)) for n in range(8)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(8)]
        metrics = sandbox.metrics()
        assert metrics["sandbox/wait_seconds_mean"] > 0.1
        assert metrics["sandbox/calls"] == metrics["sandbox/ok"] == 8


async def test_two_stages_on_one_sandbox_do_not_see_each_other() -> None:
    async with Sandbox(settings(workers=2)) as sandbox:

        async def stage(name: str) -> list[str]:
            code = (
                f"import os, time\nopen('../{name}', 'w').close()\ntime.sleep(0.02)\n"
                f"print('{name}', sorted(os.listdir('..')))"
            )
            return [(await sandbox.run(code)).stdout for _ in range(20)]

        one, two = await asyncio.gather(stage("one"), stage("two"))
        assert one == ["one ['call', 'one']\n"] * 20
        assert two == ["two ['call', 'two']\n"] * 20


async def test_a_cancelled_call_ends_with_its_program() -> None:
    async with Sandbox(settings(wall_seconds=60)) as sandbox:
        call = asyncio.create_task(sandbox.run("while True: pass"))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await sandbox.run("print('free')")).stdout == "free\n"


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
        async with Sandbox(settings()):
            pytest.fail("a sandbox with a writable folder opened")
    broken = [check for check in self_test(settings()) if not check.ok]
    assert [check.name for check in broken] == ["sandbox/files"]
    assert broken[0].remedy


def test_self_test_passes_here() -> None:
    checks = self_test(settings())
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


async def test_an_image_of_other_sources_is_refused(scripted: Any) -> None:
    scripted(GOOD)
    old = Worker(settings(), "bubblewrap")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "source_hash", lambda: "newer")
        with pytest.raises(SandboxError, match="other sources"):
            await old.start()


async def test_a_lost_worker_says_so() -> None:
    one = Worker(settings(), "bubblewrap")
    await one.start()
    await one.stop()
    with pytest.raises((WorkerLost, AssertionError)):
        await one.call("print(1)")
