"""A store with a small warm-started model, and stages run in it as processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from training.config import ExperimentConfig, identity_dump
from training.config_load import merge
from training.models import save_model
from training.prompts import template_path
from training.spec import StageSpec
from training.stages.__main__ import run_stage
from training.store import Store
from training.tiny_world.sets import excluded_problems, problem_set
from training.tiny_world.tokenizer import train_tokenizer
from training.tiny_world.warm_start import Prompts, Recipe, warm_start

SECTIONS = tuple(
    name
    for name in ExperimentConfig.model_fields
    if name not in ("profile", "method", "seed", "iterations")
)
SMALL: dict[str, Any] = {
    "model": {"source": "tiny", "name": "tiny", "dtype": "float32"},
    "rollout": {
        "group_size": 4,
        "max_turns": 3,
        "max_turn_tokens": 32,
        "max_context_tokens": 160,
        "max_observation_tokens": 40,
    },
    "sandbox": {"workers": 1, "isolation": "bubblewrap"},
    "curriculum": {"steps": 4, "batch_size": 6, "max_new_tokens": 40},
    "executor": {"steps": 4},
    "optimiser": {"learning_rate": 1e-3, "kl": "exact", "micro_batch_rows": 16},
    "checkpoints": {"every": 2},
}
BATCHES = 2


def write_base_model(folder: Path, seed: int = 0, steps: int = 240) -> None:
    """A model that often writes readable problems and calls its tool, after some seconds."""
    curriculum, executor = (
        template_path(f"tiny_{n}").read_text() for n in ("curriculum", "executor")
    )
    tokenizer = train_tokenizer(curriculum, executor)
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    recipe = Recipe(steps=steps, batch=32, learning_rate=5e-3)
    warm_start(model, tokenizer, Prompts(curriculum, executor), recipe, seed, excluded_problems())
    save_model(model, tokenizer, folder)


class World:
    """One store; `run` computes a stage in it and `read` looks at what came of it."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)

    def publish(self, name: str, fill: Callable[[Path], object], **result: Any) -> str:
        """An artifact made by hand, with more for its result; returns its identity."""
        spec = StageSpec(name, 0, 0, {}, {}, {}, "by hand", {})
        place = self.store.place(spec.identity)
        with self.store.hold(spec.identity) as attempt:
            place.payload.mkdir(parents=True)
            fill(place.payload)
            self.store.publish(spec.identity, attempt, {"metrics": {}, "inputs": {}, **result})
        return spec.identity

    def base(self, model: Path, name: str = "base_model") -> str:
        """The base model of a folder as an artifact."""
        return self.publish(name, lambda payload: (payload / "model").symlink_to(model))

    def pool(self, batches: int = BATCHES) -> tuple[str, str]:
        """A task pool, three tasks a batch, and a cached anchor group for each task but one."""
        some = problem_set("development")[: 3 * BATCHES]
        problems = [some[i % len(some)] for i in range(3 * batches)]
        tasks = [
            {"id": f"b{i % batches}-{i}", "batch": i % batches, "problem": p["problem"]}
            for i, p in enumerate(problems)
        ]
        anchors = [
            {
                "task": t["id"],
                "batch": t["batch"],
                "labels": [p["answer"], p["answer"], "-1", None],
                "tool_calls": [1, 1, 0, 0],
            }
            for t, p in zip(tasks, problems, strict=True)
        ]

        def fill_pool(payload: Path) -> None:
            (payload / "tasks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tasks))
            (payload / "pool.json").write_text(json.dumps({"batches": batches}))

        def fill_anchors(payload: Path) -> None:
            lines = "".join(json.dumps(a) + "\n" for a in anchors[:-1])
            (payload / "anchors.jsonl").write_text(lines)

        return self.publish("task_pool", fill_pool), self.publish("anchor_cache", fill_anchors)

    def spec(
        self, stage: str, inputs: Mapping[str, str], changes: Mapping[str, Any] | None = None
    ) -> StageSpec:
        """What the stage is told: the small configuration with changes."""
        config = ExperimentConfig.model_validate(merge(SMALL, changes or {}))
        sections = {name: getattr(config, name) for name in SECTIONS}
        spec = StageSpec(
            stage=stage,
            iteration=1,
            seed=config.seed,
            config={name: identity_dump(section) for name, section in sections.items()},
            inputs=dict(inputs),
            files={},
            code="",
            libraries={},
            paths={
                f"template.{name}": str(template_path(f"tiny_{name}"))
                for name in ("curriculum", "executor")
            },
            runtime={
                "sandbox": {"workers": 1, "isolation": "bubblewrap"},
                "checkpoints": {"every": 2},
            },
        )
        place = self.store.place(spec.identity)
        place.root.mkdir(parents=True, exist_ok=True)
        spec.save(place.spec)
        return spec

    def start(self, spec: StageSpec) -> subprocess.Popen[bytes]:
        """Start the stage as a process group of its own."""
        place = self.store.place(spec.identity)
        command = [sys.executable, "-m", "training.stages", spec.stage]
        command += ["--spec", str(place.spec), "--out", str(place.root)]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
        return subprocess.Popen(
            command, cwd=root, env=environment, stderr=subprocess.PIPE, start_new_session=True
        )

    def run_here(self, spec: StageSpec) -> Path:
        """Run the stage in this process, which saves its start; returns its artifact folder."""
        with self.store.hold(spec.identity) as attempt:
            run_stage(spec, self.store, attempt)
        return self.store.place(spec.identity).artifact

    def run(self, spec: StageSpec) -> Path:
        """Run the stage as a process to its end; returns its artifact folder."""
        with self.start(spec) as process:
            _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()
        return self.store.place(spec.identity).artifact

    def kill_after(self, spec: StageSpec, step: int) -> None:
        """Start the stage and kill it with SIGKILL as soon as it reports the step."""
        metrics = self.store.place(spec.identity).work / "metrics.jsonl"
        process = self.start(spec)
        deadline = time.monotonic() + 240
        try:
            while f'"step": {step}' not in (metrics.read_text() if metrics.exists() else ""):
                assert process.poll() is None, "the stage ended before it could be killed"
                assert time.monotonic() < deadline, "the stage did not get to the step in time"
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def lines(path: Path) -> list[dict[str, Any]]:
    """Records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without the keys that measure time."""
    return [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in records]
