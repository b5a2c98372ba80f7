"""The pool: what it retries, what it restarts, when it gives up, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from training.sandbox import client, worker
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import Launch, source_hash
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
        supervisor = supervisor_pid(sandbox)
        os.kill(supervisor, signal.SIGSTOP)  # so that it cannot have answered before it dies
        call = asyncio.create_task(sandbox.run("print('done')"))
        await asyncio.sleep(0.3)
        os.kill(supervisor, signal.SIGKILL)
        result = await call
        assert (result.verdict, result.stdout) == (Verdict.OK, "done\n")
        metrics = sandbox.metrics()
        assert (metrics["sandbox/restarts"], metrics["sandbox/retries"]) == (1, 1)
        assert metrics["sandbox/infra"] == 0


async def test_a_wedged_supervisor_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 1.0)
    async with Sandbox(settings(wall_seconds=5)) as sandbox:
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
        results = await asyncio.gather(*(sandbox.run("print(1)") for _ in range(5)))
        assert [result.verdict for result in results] == [Verdict.INFRA] * 5


async def test_a_lost_supervisor_that_cannot_be_stopped_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sandbox(settings()) as sandbox:
        (lost,) = sandbox._workers

        async def fail() -> None:
            raise BlockingIOError("no process for docker rm")

        with monkeypatch.context() as patch:
            patch.setattr(lost, "stop", fail)
            os.kill(supervisor_pid(sandbox), signal.SIGKILL)
            async with asyncio.timeout(60):
                assert (await sandbox.run("print('done')")).stdout == "done\n"
        assert "could not be stopped: BlockingIOError('no process" in caplog.text
        await lost.stop()


async def test_when_starting_again_meets_a_bug_calls_are_infra_and_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Sandbox(settings(infra_share_limit=1)) as sandbox:
        monkeypatch.setattr(worker, "bubblewrap_launch", lambda folder: 1 // 0)
        os.kill(supervisor_pid(sandbox), signal.SIGKILL)
        async with asyncio.timeout(60):
            assert (await sandbox.run("print(1)")).verdict is Verdict.INFRA


@pytest.mark.parametrize("engine", ["hangs", "is not installed", "is down"])
async def test_a_supervisor_ends_where_the_engine_does_not_remove_its_container(
    scripted: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    engine: str,
) -> None:
    scripted(GOOD)
    command = worker.bubblewrap_launch
    monkeypatch.setattr(
        worker,
        "container_launch",
        lambda _, folder, name: Launch(command(folder).command, container=name),
    )
    monkeypatch.setattr(worker, "_REMOVE_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path))
    if engine != "is not installed":
        does = {"hangs": "exec /bin/sleep 600", "is down": "exit 1"}[engine]
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "docker").chmod(0o755)
    one = Worker(settings(), "container")
    await one.start()
    process = one._process
    async with asyncio.timeout(60):
        await one.stop()
    assert process is not None
    assert process.returncode is not None
    assert "may still be there" in caplog.text


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
