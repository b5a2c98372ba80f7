"""The GPU profiles against verl's own configuration schema: a dry run for each size of machine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.config import ExperimentConfig, Trainer
from training.config_load import load_layer, merge
from training.errors import ConfigError
from training.trainers.verl.layout import split_gpus

pytestmark = [pytest.mark.verl, pytest.mark.timeout(240)]


def agent(**changes: Any) -> Any:
    from training.trainers.verl.configure import Agent

    made = Agent(
        weights=Path("/models/executor"),
        base=Path("/models/base"),
        work=Path("/work"),
        learning_rate=1e-6,
        max_prompt_tokens=8192,
        steps=128,
        gpus_per_node=8,
    )
    return replace(made, **changes)


def config(profile: str, **trainer: Any) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        merge(load_layer("profiles", profile), {"trainer": trainer})
    )


@pytest.mark.parametrize("profile", ["qwen3-4b", "mimo-7b"])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (1, 4), (1, 2), (1, 1), (2, 8)])
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_profiles_compose(profile: str, nodes: int, gpus: int, frozen: int) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    from training.trainers.verl.configure import compose_config

    told = config(profile, nodes=nodes, gpus_per_node=gpus)
    split = split_gpus(told.trainer, trains=True, frozen=frozen)
    assert split.shared == (nodes * gpus // 2 < frozen)
    made = compose_config(
        agent(gpus_per_node=split.training_per_node),
        told.model,
        told.optimiser,
        told.rollout,
        told.trainer,
    )
    assert made.trainer.n_gpus_per_node * made.trainer.nnodes == split.training_per_node * nodes
    actor = omega_conf_to_dataclass(made.actor_rollout_ref.actor)
    assert actor.optim.lr == 1e-6
    assert actor.optim.betas == [0.9, 0.999]
    assert actor.use_kl_loss
    assert actor.fsdp_config.offload_policy == (split.training_per_node * nodes < 4)
    assert actor.ppo_max_token_len_per_gpu >= told.rollout.max_context_tokens
    sampling = omega_conf_to_dataclass(made.actor_rollout_ref.rollout)
    assert sampling.max_model_len == told.rollout.max_context_tokens == 16384
    assert sampling.prompt_length + sampling.response_length == sampling.max_model_len
    assert OmegaConf.missing_keys(made.actor_rollout_ref.actor) == set()


def test_settings_of_the_user_win_and_unknown_ones_are_refused() -> None:
    from training.trainers.verl.configure import compose_config

    told = config("qwen3-4b", verl={"actor_rollout_ref.rollout.max_num_seqs": 77})
    parts = (told.model, told.optimiser, told.rollout)
    assert (
        compose_config(agent(), *parts, told.trainer).actor_rollout_ref.rollout.max_num_seqs == 77
    )
    with pytest.raises(ConfigError, match=r"trainer\.verl"):
        compose_config(agent(), *parts, Trainer(verl={"actor_rollout_ref.rollout.max_seqs": 1}))
