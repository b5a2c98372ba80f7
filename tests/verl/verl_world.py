"""Stages of the verl backend as processes, each in a session of its own and under a deadline."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from cpu_settings import CPU, ENVIRONMENT
from trainer_world import World

from training.config_load import merge
from training.spec import StageSpec

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "rollout": {"temperature": 0.2},  # so that a small model's groups have majorities
    "optimiser": {"kl": "k3", "learning_rate": 1e-3, "micro_batch_rows": 16},
    "curriculum": {"steps": 2},
    "executor": {"steps": 2},
    "trainer": {"backend": "verl", "verl": CPU},
}


class VerlWorld(World):
    """`World` for stages of verl; nothing that a stage starts outlives `run` or `kill`."""

    def told(
        self,
        stage: str,
        inputs: Mapping[str, str],
        changes: Mapping[str, Any] | None = None,
        *,
        gpus: int = 1,
        deadline: float = 240.0,
    ) -> StageSpec:
        """What the stage is told; `gpus` are logical ones."""
        spec = self.spec(stage, inputs, merge(SMALL, changes or {}))
        spec.runtime["trainer"] = {"gpus_per_node": gpus, "deadline_seconds": deadline}
        spec.runtime["checkpoints"] = {"every": 1}
        spec.save(self.store.place(spec.identity).spec)
        return spec

    def begin(self, spec: StageSpec, **environment: str) -> "subprocess.Popen[bytes]":
        """Start the stage; its output goes to a file in its work folder."""
        place = self.store.place(spec.identity)
        place.work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "training.stages", spec.stage]
        command += ["--spec", str(place.spec), "--out", str(place.root)]
        told = {**os.environ, **ENVIRONMENT, **environment}
        told["PYTHONPATH"] = os.pathsep.join([str(ROOT), ENVIRONMENT["PYTHONPATH"]])
        with (place.work / "output.log").open("ab") as output:
            return subprocess.Popen(
                command, cwd=ROOT, env=told, stdout=output, stderr=output, start_new_session=True
            )

    def finish(self, spec: StageSpec, seconds: float, **environment: str) -> Path:
        """Run the stage to its end; returns its artifact folder."""
        process = self.begin(spec, **environment)
        try:
            code = process.wait(seconds)
        finally:
            end(process)
        assert code == 0, self.tail(spec)
        return self.store.place(spec.identity).artifact

    def failure(self, spec: StageSpec) -> dict[str, Any]:
        """failure.json of the stage."""
        return dict(json.loads(self.store.place(spec.identity).failure.read_text()))

    def tail(self, spec: StageSpec) -> str:
        """The end of what the stage printed."""
        return (self.store.place(spec.identity).work / "output.log").read_text()[-4000:]


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the stage and everything that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def descendants(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Everything that the stage has started so far."""
    return psutil.Process(process.pid).children(recursive=True)


def all_gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Whether all of them end in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return True
        time.sleep(0.2)
    return False
