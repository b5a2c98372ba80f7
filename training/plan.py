"""The DAG of an experiment as stage specs, with every identity known before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.benchmarks.asking import TEMPLATE_NAMES
from training.config import ExperimentConfig, Rollout, backend_module, identity_dump
from training.errors import ConfigError
from training.fingerprint import code_fingerprint
from training.prompts import template_path
from training.questions import TINY, benchmark_names
from training.spec import (
    StageSpec,
    file_digest,
    interpreter,
    library_versions,
    versions_elsewhere,
)

SECTIONS: dict[str, tuple[str, ...]] = {
    "base_model": ("model",),
    "anchor": (),
    "curriculum": (
        "model",
        "prompts",
        "rollout",
        "sandbox",
        "curriculum",
        "advantage",
        "optimiser",
        "checkpoints",
        "alarms",
        "trainer",
    ),
    "task_pool": (),
    "anchor_cache": ("model", "prompts", "rollout", "sandbox", "anchor", "trainer"),
    "executor": (
        "model",
        "prompts",
        "rollout",
        "sandbox",
        "executor",
        "adpo",
        "advantage",
        "optimiser",
        "checkpoints",
        "alarms",
        "trainer",
    ),
    "evaluation": ("model", "prompts", "rollout", "sandbox", "evaluation", "trainer"),
}
"""Sections of the configuration that each stage may read; they alone enter its identity."""


@dataclass(frozen=True)
class PlanEntry:
    """One stage of the plan, in an order in which it can run."""

    spec: StageSpec
    identity: str

    @property
    def name(self) -> str:
        """``i{iteration}/{stage}``, as shown to people."""
        return f"i{self.spec.iteration}/{self.spec.stage}"


def plan(config: ExperimentConfig, image: str | None = None) -> list[PlanEntry]:
    """All stages of an experiment: the base model, its evaluation, then T outer iterations.

    Stages of the GPU backend have the libraries of `trainer.python`, or of a container `image`,
    which stands for their versions.

    Raises ConfigError when a template or a benchmark file is missing.
    """
    return _Planner(config, image).experiment()


class _Planner:
    def __init__(self, config: ExperimentConfig, image: str | None) -> None:
        self.config, self.image = config, image
        self.entries: list[PlanEntry] = []

    def experiment(self) -> list[PlanEntry]:
        config = self.config
        base = self._add("base_model", 0, {})
        self._add("evaluation", 0, {"executor": base})
        curriculum = executor = base
        executors = {0: base}
        for t in range(1, config.iterations + 1):
            curriculum, executor = self._iteration(t, base, curriculum, executor, executors)
            executors[t] = executor
        return self.entries

    def _iteration(
        self, t: int, base: str, curriculum: str, executor: str, executors: Mapping[int, str]
    ) -> tuple[str, str]:
        needs_anchor = (
            self.config.curriculum.lambda_ref > 0 or self.config.executor.reference == "anchor"
        )
        anchored: dict[str, str] = {}
        if needs_anchor:
            frozen = executors[self.anchor_source(t)]
            anchored = {"anchor": self._add("anchor", t, {"executor": frozen}), "frozen": frozen}
        with_reference = anchored if self.config.curriculum.lambda_ref > 0 else {}
        curriculum = self._add(
            "curriculum",
            t,
            {"base": base, "curriculum": curriculum, "executor": executor, **with_reference},
        )
        pool = self._add("task_pool", t, {"curriculum": curriculum})
        history: dict[str, str] = {}
        if self.config.executor.reference == "anchor":
            history = anchored
            if self.config.anchor.cache != "none":
                source = {"curriculum": curriculum} if self._kept() else anchored
                cache = self._add("anchor_cache", t, {"task_pool": pool, **source})
                history = {"anchor_cache": cache}
        executor = self._add(
            "executor", t, {"base": base, "executor": executor, "task_pool": pool, **history}
        )
        self._add("evaluation", t, {"executor": executor, "task_pool": pool})
        return curriculum, executor

    def _kept(self) -> bool:
        return self.config.anchor.cache == "curriculum"

    def anchor_source(self, t: int) -> int:
        """The iteration whose Executor is the anchor of iteration t (0 = base model)."""
        anchor = self.config.anchor
        if anchor.refresh == "never":
            return 0
        every = anchor.every_k if anchor.refresh == "every_k" else 1
        return (t - 1) // every * every

    def _add(self, stage: str, iteration: int, inputs: dict[str, str]) -> str:
        sections = {name: getattr(self.config, name) for name in SECTIONS[stage]}
        config = {name: identity_dump(section) for name, section in sections.items()}
        runtime = {
            name: _recorded_only(section.model_dump(), config[name])
            for name, section in sections.items()
        }
        paths = self._files(stage, sections.get("rollout"))
        spec = StageSpec(
            stage=stage,
            iteration=iteration,
            seed=self._seed(stage),
            config=config,
            inputs=inputs,
            files={name: file_digest(path) for name, path in paths.items()},
            code=code_fingerprint(*self._modules(stage)),
            libraries=self._libraries(stage),
            paths={name: str(path) for name, path in paths.items()},
            runtime={name: values for name, values in runtime.items() if values},
        )
        self.entries.append(PlanEntry(spec, spec.identity))
        return spec.identity

    def _modules(self, stage: str) -> list[str]:
        """The code that a stage runs: its own, and that of the backend it opens."""
        backend = [backend_module(self.config.trainer.backend)]
        return [f"training.stages.{stage}", *(backend if "trainer" in SECTIONS[stage] else [])]

    def _libraries(self, stage: str) -> dict[str, str]:
        trainer = self.config.trainer
        if trainer.backend == "torch" or "trainer" not in SECTIONS[stage]:
            return library_versions()
        return (
            {"image": self.image} if self.image else versions_elsewhere(interpreter(trainer.python))
        )

    def _seed(self, stage: str) -> int:
        """Weights that are fetched, not trained, are the same for every seed."""
        fetched = stage == "base_model" and self.config.model.source != "tiny"
        return 0 if fetched else self.config.seed

    def _files(self, stage: str, rollout: Rollout | None) -> dict[str, Path]:
        files: dict[str, Path] = {}
        prompts = self.config.prompts
        warm_start = stage == "base_model" and self.config.model.source == "tiny"
        if stage == "curriculum" or warm_start:
            files["template.curriculum"] = template_path(prompts.curriculum)
        if warm_start:
            files["template.executor"] = template_path(prompts.executor)
        if stage == "base_model" and self.config.model.source == "folder":
            files["model"] = self._model_folder()
        if rollout is not None:
            name = prompts.executor if rollout.tool else prompts.executor_without_tool
            files["template.executor"] = template_path(name)
        if stage == "evaluation":
            files |= self._benchmark_files()
            if any(name != TINY for name in self.config.evaluation.benchmarks):
                files |= {f"template.{name}": template_path(name) for name in TEMPLATE_NAMES}
        return files

    def _model_folder(self) -> Path:
        path = Path(self.config.model.name).resolve()
        if not path.is_dir():
            raise ConfigError(f"model.name '{self.config.model.name}' is not a folder")
        return path

    def _benchmark_files(self) -> dict[str, Path]:
        evaluation = self.config.evaluation
        known = benchmark_names()
        for name in (*evaluation.benchmarks, *evaluation.files):
            if name not in known:
                raise ConfigError(
                    f"benchmark '{name}' does not exist; choose from {', '.join(known)}"
                )
        files = {}
        for name, text in evaluation.files.items():
            path = Path(text).resolve()
            if not path.exists():
                raise ConfigError(f"evaluation.files.{name} = '{text}' is not a file or folder")
            files[f"benchmark.{name}"] = path
        return files


def _recorded_only(full: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for key, value in full.items():
        if key not in kept:
            out[key] = value
        elif isinstance(value, dict) and isinstance(kept[key], dict):
            nested = _recorded_only(value, kept[key])
            if nested:
                out[key] = nested
    return out
