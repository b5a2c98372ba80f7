"""The attack list, one property a test, against every level of isolation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from attack_table import OK, RESOURCES, Attack
from escape_table import ESCAPES
from integrity_table import INTEGRITY
from sandbox_box import WALL, Box

from training.sandbox import isolation as isolation_of
from training.sandbox.client import SandboxError
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import CallResult, Verdict, observation
from training.sandbox.worker import Worker

ATTACKS = sorted([*RESOURCES, *INTEGRITY, *ESCAPES], key=lambda attack: attack.number)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.number}-{attack.name}")
def test_attack(box: Box, attack: Attack) -> None:
    before = box.supervisor().memory_info().rss
    free = box.host_free()
    result = box.run(attack.code)
    seen = f"{result.verdict} {result.stdout[:300]!r} {result.stderr[-600:]!r} {result.signal}"
    assert result.verdict in attack.verdicts, seen
    assert attack.holds(result), seen
    assert result.seconds < WALL + 30, "a time-out that takes this long is a hang"
    assert "Traceback" not in observation(result)
    box.assert_unharmed(before)
    assert free - box.host_free() < 512 << 20, "the host's disk paid for it"


def test_17_ports_of_the_host_are_out_of_reach(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        result = box.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)")
        assert result.verdict is Verdict.ERROR
        with pytest.raises(TimeoutError):
            server.accept()


def test_20_what_a_call_leaves_is_gone(box: Box) -> None:
    planted = (
        "import os, pathlib, random, sympy, numpy\n"
        "open('left', 'w').close(); open('../left', 'w').close()\n"
        "os.environ['LEFT'] = '1'; sympy.left = numpy.left = 1\n"
        "try: open('/dev/mqueue/left', 'w').close()\nexcept OSError: pass\n"
        "print(random.random(), numpy.random.rand())"
    )
    looked = (
        "import os, sympy, numpy, random\n"
        "queue = os.listdir('/dev/mqueue') if os.path.isdir('/dev/mqueue') else []\n"
        "print(os.listdir('.'), os.listdir('..'), 'LEFT' in os.environ,\n"
        "      hasattr(sympy, 'left'), hasattr(numpy, 'left'), queue)\n"
    )
    first, second = box.run(planted), box.run(planted)
    assert first.verdict is Verdict.OK, first.stderr
    assert first.stdout == second.stdout, "the same program prints the same random numbers"
    assert box.run(looked).stdout == "[] ['call'] False False False []\n"


def test_36_a_storm_leaves_bystanders_alone(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = [attack for attack in RESOURCES if attack.number <= 9]
    box = Box(isolation, workers=2)
    try:
        attacks = [storm[n % len(storm)] for n in range(32)]
        codes = [code for n, attack in enumerate(attacks) for code in (attack.code, f"print({n})")]
        real = Worker.call

        async def call(worker: Worker, code: str, wall_seconds: float | None = None) -> CallResult:
            """A bystander has the time that it needs beside a storm."""
            return await real(worker, code, 60.0 if code.startswith("print(") else wall_seconds)

        monkeypatch.setattr(Worker, "call", call)
        results = box.run_all(codes)
        for n, attack in enumerate(attacks):
            hostile, bystander = results[2 * n], results[2 * n + 1]
            assert hostile.verdict in attack.verdicts, (attack.name, hostile.stderr)
            assert (bystander.verdict, bystander.stdout) == (OK, f"{n}\n")
        metrics = box.sandbox.metrics()
        assert metrics["sandbox/restarts"] == 0
        assert metrics["sandbox/infra"] == 0
    finally:
        box.close()


@pytest.mark.system
def test_37_without_engine_or_image_calls_are_infra(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = SandboxSettings(isolation="container", image="anchorloop-absent")
    with pytest.raises(SandboxError, match="'anchorloop-absent' is missing"):
        isolation_of.choose(absent)
    box = Box("container")
    supervisor = box.supervisor()
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/no-engine")
    with pytest.raises(SandboxError, match="no Docker engine answers"):
        isolation_of.choose(absent)
    supervisor.kill()
    assert box.run("print(1)").verdict is Verdict.INFRA
    with pytest.raises(SandboxError, match="1 of 1"):
        box.close()


def test_every_number_of_the_list_is_attacked() -> None:
    alone = {17, 20, 36, 37}  # the tests above
    assert {attack.number for attack in ATTACKS} | alone == set(range(1, 39))


def test_two_sandboxes_do_not_see_each_other(isolation: str) -> None:
    """Two stages, each with a sandbox of its own, at the same time."""
    here, there = Box(isolation), Box(isolation)
    try:
        linger = "import time\nopen('../mark', 'w').close()\nprint('here')\ntime.sleep(1.5)"
        look = (
            "import os\nseen = [n for n in os.listdir('/proc') if n.isdecimal()] "
            "if os.path.isdir('/proc') else []\n"
            "print(os.listdir('..'), sorted(set(seen) - {'1', str(os.getpid())}))"
        )
        results = {}
        thread = threading.Thread(target=lambda: results.update(linger=here.run(linger)))
        thread.start()
        looks = [there.run(look).stdout for _ in range(5)]
        thread.join()
        assert results["linger"].stdout == "here\n"
        assert looks == ["['call'] []\n"] * 5
        assert here.supervisor().pid != there.supervisor().pid
    finally:
        here.close()
        there.close()


def test_nothing_of_a_closed_sandbox_runs(isolation: str) -> None:
    box = Box(isolation)
    supervisor = box.supervisor()
    folder = next(iter(box.sandbox._workers))._folder
    box.close()
    supervisor.wait(30)
    assert folder is not None
    assert not os.path.exists(folder)


@pytest.mark.system
def test_the_list_again_as_an_ordinary_user() -> None:
    """Root gives programs a user of their own; an ordinary user cannot, and needs no less."""
    if os.geteuid() != 0:
        return  # the list above has just been run by one
    bwrap = isolation_of.bubblewrap()
    assert bwrap is not None
    project, home, base = isolation_of.PROJECT, Path.home(), Path(sys.base_prefix)
    # Root's home is closed to others, and may hold Python or the project: show those two alone.
    ways = {up for place in (base, project) for up in place.parents if up.is_relative_to(home)}
    inner = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", __file__]
    inner += ["-k", "bubblewrap", "-m", "not system"]
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    command = [
        bwrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--cap-add", "ALL",
        "--perms", "0755", "--tmpfs", str(home),
        *(word for way in sorted(ways) for word in ("--perms", "0755", "--dir", str(way))),
        "--ro-bind", str(base), str(base), "--ro-bind", str(project), str(project),
        "--chdir", str(project), "--setenv", "HOME", "/tmp", *drop, *inner,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
