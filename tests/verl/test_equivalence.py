"""The same batch through the embedded trainer and through verl's FSDP2 engine."""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "cpu_platform"}

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from training.models import load_model
from training.rollout.trajectory import Status, Stop, Trajectory
from training.trainers.samples import Sample
from training.trainers.torch.update import PolicyUpdate, UpdateSettings

pytestmark = [pytest.mark.verl, pytest.mark.timeout(180)]
VOCABULARY = 23
BETA, CLIP_LOW = 0.05, 0.2


def write_model(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():  # away from the uniform distribution of the default initialisation
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)


def groups(adpo: bool) -> list[list[Sample]]:
    """Three tasks of four trajectories: lengths, masks, advantages and clip widths all differ."""
    rng = random.Random(7)
    made = []
    for task in range(3):
        group = []
        for member in range(4):
            prompt, output = rng.randint(2, 6), rng.randint(1, 14)
            mask = [int(rng.random() < 0.7) for _ in range(output)]
            mask[-1] = 1
            ids = [rng.randrange(VOCABULARY) for _ in range(prompt + output)]
            t = Trajectory(
                task=f"t{task}",
                prompt_ids=ids[:prompt],
                output_ids=ids[prompt:],
                mask=mask,
                logprobs=[-1.0 * m for m in mask],
                turns=1,
                calls=[],
                status=Status.VALID,
                label="5",
                reason="",
                stop=Stop.EOS,
                seed=member,
                text="",
            )
            wide = 0.2 + 0.05 * task if adpo else 0.2
            group.append(Sample(t, rng.uniform(-2, 2), wide))
        made.append(group)
    return made


class VerlEngine:
    """verl's FSDP2 engine in this process, fed as its workers are."""

    def __init__(self, folder: Path, learning_rate: float) -> None:
        from verl.trainer.config import CheckpointConfig
        from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
        from verl.workers.engine import EngineRegistry

        self.engine = EngineRegistry.new(
            model_type="language_model",
            backend="fsdp2",
            model_config=HFModelConfig(
                path=str(folder),
                load_tokenizer=False,
                use_remove_padding=False,
                enable_gradient_checkpointing=False,
                override_config={"attn_implementation": "eager"},
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                use_torch_compile=False,
                dtype="float32",
                mixed_precision={"param_dtype": "fp32"},
            ),
            optimizer_config=FSDPOptimizerConfig(
                lr=learning_rate, weight_decay=0.0, clip_grad=1e9, total_training_steps=10
            ),
            checkpoint_config=CheckpointConfig(),
        )
        self.engine.initialize()

    def batch(self, samples: Sequence[Sample], rows: int = 3):  # type: ignore[no-untyped-def]
        from verl.utils import tensordict_utils as tu

        def nested(values: list[torch.Tensor]) -> torch.Tensor:
            return torch.nested.as_nested_tensor(values, layout=torch.jagged)

        ts = [s.trajectory for s in samples]
        lengths = [len(t.prompt_ids) + len(t.output_ids) for t in ts]
        masks = nested([torch.tensor(t.mask) for t in ts])
        column = {
            "advantage": [s.advantage for s in samples],
            "clip_high": [s.clip_high for s in samples],
            "n_sequences": [float(len(samples))] * len(samples),
        }
        return tu.get_tensordict(
            {
                "input_ids": nested([torch.tensor(t.prompt_ids + t.output_ids) for t in ts]),
                "position_ids": nested([torch.arange(n) for n in lengths]),
                "prompts": nested([torch.tensor(t.prompt_ids) for t in ts]),
                "responses": nested([torch.tensor(t.output_ids) for t in ts]),
                "response_mask": masks,
                "loss_mask": masks,
                **{name: torch.tensor(values)[:, None] for name, values in column.items()},
            },
            {
                "use_remove_padding": False,
                "use_dynamic_bsz": False,
                "micro_batch_size_per_gpu": rows,
                "temperature": 1.0,
                "global_batch_size": len(samples),
            },
        )

    def log_probs(self, data) -> torch.Tensor:  # type: ignore[no-untyped-def]
        from verl.workers.utils.padding import response_from_nested

        with self.engine.eval_mode():
            output = self.engine.infer_batch(data.copy())
        return response_from_nested(output["model_output"]["log_probs"], data["response_mask"])


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    import verl  # noqa: F401  (loads the platform)

    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    yield
    torch.distributed.destroy_process_group()


def embedded(policy: PreTrainedModel, base: PreTrainedModel, rate: float) -> PolicyUpdate:
    return PolicyUpdate(
        policy,
        base,
        UpdateSettings(
            learning_rate=rate,
            beta=BETA,
            kl="k3",
            mini_batches=1,
            clip_low=CLIP_LOW,
            gradient_clip=1e9,
            micro_batch_rows=5,
            weight_decay=0.0,
            betas=(0.9, 0.999),
        ),
    )


@pytest.mark.parametrize("method", ["adpo", "grpo"])
def test_loss_and_gradient_agree(tmp_path: Path, method: str) -> None:
    """Two steps on one rollout: in the second the ratios have left 1 and the clip acts."""
    from training.trainers.verl.loss import PolicyLoss

    rate = 0.02
    for name, seed in (("policy", 0), ("base", 1)):
        write_model(tmp_path / name, seed)
    policy, base = load_model(tmp_path / "policy"), load_model(tmp_path / "base")
    ours = embedded(policy, base, rate)
    theirs = VerlEngine(tmp_path / "policy", rate)
    made = groups(adpo=method == "adpo")
    samples = [s for group in made for s in group]
    data = theirs.batch(samples)
    data["old_log_probs"] = theirs.log_probs(data)
    data["ref_log_prob"] = VerlEngine(tmp_path / "base", rate).log_probs(data)
    old = ours._frozen_logps([samples])

    for step in range(2):
        expected = ours._optimise(samples, old)
        with theirs.engine.train_mode():
            found = theirs.engine.train_batch(data.copy(), PolicyLoss(CLIP_LOW, BETA))
        assert sum(found["loss"]) == pytest.approx(expected["loss"], rel=1e-4), step
        assert float(found["metrics"]["grad_norm"]) == pytest.approx(
            expected["grad_norm"], rel=1e-4
        ), step
        for name in ("kl", "ratio", "clip_high", "clip_low", "policy_loss"):
            value = found["metrics"][f"adpo/{name}"].aggregate()
            assert value == pytest.approx(expected[name], rel=1e-4, abs=1e-6), (step, name)
        theirs.engine.lr_scheduler_step()
    assert expected["clip_low"] + expected["clip_high"] > 0, "the clip never acted"
