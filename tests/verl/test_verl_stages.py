"""Stages of the real verl and vLLM: on a Ray cluster, and without a GPU."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cpu_settings import ENVIRONMENT
from trainer_world import lines
from verl_world import ROOT, VerlWorld, end

from training.models import load_model, weights_digest

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
DEADLINE = 400.0
"""Seconds for a whole stage, most of them for starting Ray, workers and vLLM."""


@pytest.fixture
def ray_head() -> Iterator[dict[str, str]]:
    """A Ray head of its own, started as on a cluster; the environment that joins it."""
    ray, address = str(Path(sys.executable).with_name("ray")), "127.0.0.1:26379"
    key = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    told = {**os.environ, **ENVIRONMENT, **key}
    told["PYTHONPATH"] = os.pathsep.join([str(ROOT), ENVIRONMENT["PYTHONPATH"]])
    command = [ray, "start", "--head", "--port=26379", "--num-gpus=2", "--num-cpus=16"]
    command += ["--include-dashboard=false", "--object-store-memory=300000000", "--block"]
    head = subprocess.Popen(command, env=told, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        status = [ray, "status", f"--address={address}"]
        while subprocess.run(status, capture_output=True, env=told, timeout=60).returncode:
            assert head.poll() is None, "the Ray head ended"
            assert time.monotonic() < deadline, "the Ray head did not come up"
        yield {**key, "RAY_ADDRESS": address}
    finally:
        end(head)


def test_the_curriculum_is_judged_by_servers_of_a_ray_cluster(
    tmp_path: Path, base_model: Path, ray_head: dict[str, str]
) -> None:
    world = VerlWorld(tmp_path / "store")
    base = world.base(base_model)
    anchor = world.publish("anchor", lambda payload: (payload / "anchor.json").write_text("{}"))
    inputs = {**dict.fromkeys(("base", "curriculum", "executor", "frozen"), base)}
    spec = world.told("curriculum", {**inputs, "anchor": anchor}, gpus=2)
    artifact = world.finish(spec, DEADLINE, **ray_head)
    candidates = lines(artifact / "candidates.jsonl")
    assert [c["index"] for c in candidates] == list(range(6)) * 2
    valid = [c for c in candidates if c["r_fmt"] == 1]
    assert len(valid) > 3
    assert all(len(c["current"]["labels"]) == len(c["reference"]["labels"]) == 4 for c in valid)
    assert any(c["current"] != c["reference"] for c in valid), "the groups are not independent"
    assert any(n for c in valid for n in c["current"]["tool_calls"]), "no tool was called"
    metrics = lines(artifact.parent / "work" / "metrics.jsonl")
    assert all(line["rollout_correlation"] > 0.999 for line in metrics)
    assert all(line["optimiser_steps"] == 1 for line in metrics)
    assert weights_digest(load_model(artifact / "model")) != weights_digest(load_model(base_model))


def test_without_a_gpu_the_backend_is_refused_in_one_sentence(
    tmp_path: Path, base_model: Path
) -> None:
    world = VerlWorld(tmp_path / "store")
    base, (pool, cache) = world.base(base_model), world.pool()
    inputs = {"base": base, "executor": base, "task_pool": pool, "anchor_cache": cache}
    spec = world.told("executor", inputs)
    process = world.begin(spec, VERL_PLATFORM="", VERL_USE_EXTERNAL_MODULES="")
    try:
        assert process.wait(120) == 1
    finally:
        end(process)
    failure = world.failure(spec)
    assert failure["kind"] == "config"
    assert "needs a GPU" in failure["message"]
