"""Without any network everything works, and nothing so much as tries to reach one.

A run gets a network namespace of its own with loopback alone. The kernel counts there every packet
that found no route: a process that reports to somebody, or asks a name server, is seen by that.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.flow_world import World

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

SHORT = {
    "curriculum.steps": 1,
    "curriculum.batch_size": 8,
    "executor.steps": 2,
    "evaluation.limit": 8,
    "gate.min_mean_at_k": 0,
    "gate.max_top_answer_share": 1,
}
INSIDE = """
import fcntl, json, socket, struct, subprocess, sys

def tried():
    lines = [x.split() for x in open("/proc/net/snmp").read().splitlines() if x.startswith("Ip:")]
    return int(dict(zip(*lines))["OutNoRoutes"])

with socket.socket() as plain:
    request = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
    fcntl.ioctl(plain, 0x8914, request)  # SIOCSIFFLAGS
with open("resolv.conf", "w") as names:
    names.write("nameserver 192.0.2.1")  # one on loopback would not be counted
subprocess.check_call(["mount", "--bind", "resolv.conf", "/etc/resolv.conf"])
before = tried()
statuses = [subprocess.call(command) for command in json.loads(sys.argv[1])]
after = tried()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    try:
        probe.connect(("192.0.2.1", 53))
        sys.exit("the namespace has a way out")
    except OSError:
        pass
if tried() == after:
    sys.exit("attempts are not counted here")
print(f"attempts to reach a network: {after - before}")
sys.exit(max(statuses))
"""


def alone(world: World, *commands: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    """Commands of ours, one after another, where there is no network but loopback."""
    lines = json.dumps([world.command(*command) for command in commands])
    command = ["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--mount"]
    command += [sys.executable, "-c", INSIDE, lines]
    return subprocess.run(
        command, cwd=world.root, env=world.environment, capture_output=True, text=True, timeout=1500
    )


def test_servers_without_a_network_report_to_nobody(tmp_path: Path) -> None:
    world = World(tmp_path / "root", stubs=True)
    done = alone(world, ("up",), ("run", "--name", "r", "--iterations", "1"), ("down",))
    world.cli("down")
    assert done.returncode == 0, done.stderr
    assert "ended: worker, prefect, mlflow" in done.stdout
    assert "attempts to reach a network: 0" in done.stdout


def test_a_run_of_the_real_stages_without_a_network(tmp_path: Path) -> None:
    world = World(tmp_path / "root", stubs=False)
    settings = [part for key, value in SHORT.items() for part in ("--set", f"{key}={value}")]
    done = alone(world, ("run", "--name", "r", "--iterations", "1", *settings))
    assert done.returncode == 0, done.stderr
    assert [row["iteration"] for row in world.summary("r")["iterations"]] == [0, 1]
    assert "attempts to reach a network: 0" in done.stdout
