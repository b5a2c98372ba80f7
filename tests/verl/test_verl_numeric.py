"""A NaN in a stage of the real verl: refused as numeric, with the weights as they were."""

import math
import shutil
from pathlib import Path

import pytest
from trainer_world import write_base_model
from verl_world import VerlWorld, end

from training.errors import NumericError
from training.models import load_model, load_tokenizer, save_model

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]


def test_a_broken_base_model_ends_the_stage_at_its_first_loss(tmp_path: Path) -> None:
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    write_base_model(sound)
    model = load_model(sound)
    next(model.parameters()).data[1, 0] = math.nan
    save_model(model, load_tokenizer(sound), broken)
    world = VerlWorld(tmp_path / "store")
    executor, (pool, cache) = world.base(sound), world.pool()
    base = world.publish("broken", lambda payload: shutil.copytree(broken, payload / "model"))
    inputs = {"base": base, "executor": executor, "task_pool": pool, "anchor_cache": cache}
    # nearly greedy, so that groups have a majority and the loss is reached
    spec = world.told("executor", inputs, {"rollout": {"temperature": 0.05}})
    process = world.begin(spec)
    try:
        assert process.wait(600) == 1, world.tail(spec)
    finally:
        end(process)
    failure = world.failure(spec)
    assert failure["kind"] == "numeric", failure
    assert "nan" in failure["message"]
    place = world.store.place(spec.identity)
    assert not place.artifact.exists()
    assert not (place.work / "metrics.jsonl").exists()
    assert not list((place.work / "checkpoints").glob("step_*"))


@pytest.mark.parametrize("name", ["actor/entropy", "training/rollout_probs_diff_mean"])
def test_a_diverged_policy_is_refused_before_the_update(name: str) -> None:
    from training.trainers.verl.trainer import _require_finite

    _require_finite({"actor/entropy": 0.3, "training/rollout_actor_probs_pearson_corr": math.nan})
    with pytest.raises(NumericError, match=f"{name} is nan: the policy's weights have diverged"):
        _require_finite({name: math.nan})
