"""verl's configuration for one agent: its own defaults, then our settings, then the user's.

Composed by Hydra from the files that verl ships, so that a name verl does not know is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from training.config import Model, Optimiser, Rollout, Trainer
from training.errors import ConfigError
from training.trainers.verl.layout import RESIDENT_FROM

AGENT = "anchorloop"
"""Name of our agent loop in verl's registry."""
_BASE = "anchorloop_base_model"
"""Where the frozen base model is told to the workers, which else know one model."""


@dataclass(frozen=True)
class Agent:
    """What differs between the agents: folders, step size, and how long they write."""

    weights: Path
    base: Path
    work: Path
    learning_rate: float
    max_prompt_tokens: int
    steps: int
    gpus_per_node: int


def compose_config(
    agent: Agent, model: Model, optimiser: Optimiser, rollout: Rollout, trainer: Trainer
) -> DictConfig:
    """The whole configuration, resolved and checked by verl's own rules.

    Raises `ConfigError` for a setting that verl does not know or refuses.
    """
    settings = _settings(agent, model, optimiser, rollout, trainer)
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer")
            OmegaConf.set_struct(config, True)
            for name, value in (settings | trainer.verl).items():
                path, new = name.removeprefix("+"), name.startswith("+")
                OmegaConf.update(config, path, value, force_add=new)
            for name, value in _added(agent, trainer).items():
                OmegaConf.update(config, name, value, force_add=True)
        OmegaConf.resolve(config)
        validate_config(config, need_reference_policy(config), need_critic(config))
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"verl refuses its configuration: {reason}; see trainer.verl") from error
    return config


def base_model(config: DictConfig) -> str:
    """Folder of the frozen base model, from verl's part for the workers (`actor_rollout_ref`)."""
    return str(config[_BASE])


def _settings(
    agent: Agent, model: Model, optimiser: Optimiser, rollout: Rollout, trainer: Trainer
) -> dict[str, Any]:
    longest = rollout.max_context_tokens
    resident = trainer.nodes * agent.gpus_per_node >= RESIDENT_FROM
    # A micro batch holds as many tokens as the two longest rows, or the longest where memory is
    # short.
    packed = 2 * longest if resident else longest
    return {
        "data.max_prompt_length": agent.max_prompt_tokens,
        "data.max_response_length": longest - agent.max_prompt_tokens,
        "data.train_batch_size": 1,
        "algorithm.adv_estimator": "grpo",
        "trainer.nnodes": trainer.nodes,
        "trainer.n_gpus_per_node": agent.gpus_per_node,
        "trainer.default_local_dir": str(agent.work),
        "trainer.logger": ["console"],
        "trainer.total_training_steps": agent.steps,
        **_parts("actor_rollout_ref.model", _model(agent, model)),
        **_parts("actor_rollout_ref.actor", _actor(agent, model, optimiser, packed)),
        "actor_rollout_ref.actor.fsdp_config.offload_policy": not resident,
        "actor_rollout_ref.ref.fsdp_config.strategy": "fsdp2",
        "actor_rollout_ref.ref.fsdp_config.dtype": model.dtype,
        "actor_rollout_ref.ref.fsdp_config.model_dtype": _short(model),
        **_parts("actor_rollout_ref.rollout", _sampling(model, rollout, trainer)),
    }


def _model(agent: Agent, model: Model) -> dict[str, Any]:
    return {
        "path": str(agent.weights),
        "trust_remote_code": model.remote_code,
        "use_remove_padding": True,
        "enable_gradient_checkpointing": True,
    }


def _actor(agent: Agent, model: Model, optimiser: Optimiser, packed: int) -> dict[str, Any]:
    return {
        "strategy": "fsdp2",
        "fsdp_config.strategy": "fsdp2",
        "fsdp_config.dtype": model.dtype,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": packed,
        "ppo_mini_batch_size": 1,
        "loss_agg_mode": "seq-mean-token-mean",
        "use_kl_loss": optimiser.kl_coefficient > 0,
        "kl_loss_coef": optimiser.kl_coefficient,
        "kl_loss_type": "low_var_kl",
        "grad_clip": optimiser.gradient_clip,
        "optim.lr": agent.learning_rate,
        "optim.betas": [optimiser.beta_1, optimiser.beta_2],
        "optim.weight_decay": optimiser.weight_decay,
        "optim.clip_grad": optimiser.gradient_clip,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "checkpoint.load_contents": ["model", "optimizer", "extra"],
    }


def _sampling(model: Model, rollout: Rollout, trainer: Trainer) -> dict[str, Any]:
    return {
        "name": "vllm",
        "dtype": model.dtype,
        "n": 1,
        "temperature": 1.0,  # of log-probabilities; each request brings its own for sampling
        "calculate_log_probs": True,
        "logprobs_mode": "raw_logprobs",
        "max_model_len": rollout.max_context_tokens,
        "max_num_batched_tokens": max(8192, rollout.max_context_tokens),
        "tensor_model_parallel_size": trainer.gpus_per_copy,
        "skip_tokenizer_init": False,
        "agent.default_agent_loop": AGENT,
        "agent.agent_loop_config_path": str(Path(__file__).with_name("agent_loop.yaml")),
        "agent.num_workers": 2 * trainer.nodes,
    }


def _added(agent: Agent, trainer: Trainer) -> Mapping[str, Any]:
    """What verl's files have no place for."""
    return {f"actor_rollout_ref.{_BASE}": str(agent.base)}


def _parts(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _short(model: Model) -> str:
    return {"float32": "fp32", "bfloat16": "bf16"}[model.dtype]
