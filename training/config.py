"""The experiment's configuration: pydantic models whose defaults are the paper's Table 3.

Precedence is paper < profile < method < overrides (see ``training.config_load``). A field marked
``recorded_only`` says where or how fast something runs, never what is computed, and so is left
out of every stage's identity. Section numbers refer to ``docs/method.md``.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.sandbox.settings import RECORDED_ONLY, SandboxSettings


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused and values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TinyModel(Section):
    """The built-in model that the ``base_model`` stage trains itself in a minute."""

    vocabulary: int = Field(290, ge=200, le=4096, description="Target size of the BPE vocabulary.")
    hidden: int = Field(64, ge=16, description="Hidden size.")
    layers: int = Field(2, ge=1, description="Decoder layers.")
    heads: int = Field(2, ge=1, description="Query heads, of 32 channels each.")
    key_value_heads: int = Field(1, ge=1, description="Key and value heads.")
    feed_forward: int = Field(128, ge=16, description="Feed-forward size.")
    warm_start_steps: int = Field(900, ge=1, description="Optimiser steps of the warm start.")
    warm_start_batch: int = Field(32, ge=1, description="Documents a warm-start step.")
    warm_start_learning_rate: float = Field(3e-3, gt=0, description="Peak learning rate.")


class Model(Section):
    """Where the starting weights come from (both agents start from this base model)."""

    source: Literal["tiny", "packaged", "folder", "hub"] = Field(
        "hub", description="Built-in tiny model, a packaged one, a folder, or a hub id."
    )
    name: str = Field(
        "Qwen/Qwen3-4B-Base", min_length=1, description="Hub id, folder, or package name."
    )
    revision: str | None = Field(None, description="Pinned hub revision (commit).")
    licence: str | None = Field(None, description="Licence of the weights, recorded in artifacts.")
    remote_code: bool = Field(
        False, description="Run the model's own code; needs a pinned revision."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="Data type of weights and forward passes."
    )
    tiny: TinyModel = TinyModel()

    @model_validator(mode="after")
    def _remote_code_is_pinned(self) -> Self:
        if self.remote_code and self.revision is None:
            raise ValueError("remote_code needs a pinned model.revision (a commit id)")
        return self


class Prompts(Section):
    """Prompt templates: names in ``training/templates`` (without .txt) or paths to files."""

    style: Literal["plain", "chat"] = Field(
        "plain", description="Plain text for base models, or the tokenizer's chat template."
    )
    curriculum: str = Field("curriculum", description="Template of the Curriculum's prompt.")
    executor: str = Field("executor", description="Template of the Executor's prompt, with tool.")
    executor_without_tool: str = Field(
        "executor_without_tool",
        description="Template of the Executor's prompt, tool text left out.",
    )


class Rollout(Section):
    """How trajectories are sampled (section 2)."""

    group_size: int = Field(8, ge=2, description="G, trajectories a group.")
    max_turns: int = Field(8, ge=1, description="H, turns a trajectory.")
    max_turn_tokens: int = Field(4096, ge=1, description="New tokens a turn.")
    max_context_tokens: int = Field(
        16384, ge=16, description="Prompt, generated and observation tokens together."
    )
    temperature: float = Field(1.0, gt=0, description="Sampling temperature in training.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus share in training.")
    tool: bool = Field(True, description="Whether the Executor has the Python tool.")
    max_code_chars: int = Field(1024, ge=1, description="Longer code is refused, not run.")
    max_observation_tokens: int = Field(1024, ge=8, description="Observation kept, in tokens.")
    max_infra_share: float = Field(
        0.02, ge=0, le=1, description="The stage fails above this share of infra failures."
    )
    wave_rows: int = Field(512, ge=1, description="Trajectories the embedded engine runs at once.")


class Optimiser(Section):
    """AdamW and the KL term, for both agents (sections 3 and 5)."""

    learning_rate: float = Field(1e-6, gt=0, description="Executor's learning rate.")
    curriculum_learning_rate: float | None = Field(
        None, gt=0, description="Curriculum's learning rate; empty means the Executor's."
    )
    beta_1: float = Field(0.9, ge=0, lt=1, description="AdamW's first decay rate.")
    beta_2: float = Field(0.999, ge=0, lt=1, description="AdamW's second decay rate.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay.")
    gradient_clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    kl_coefficient: float = Field(0.01, ge=0, description="β, weight of KL to the base model.")
    kl: Literal["k3", "exact"] = Field(
        "k3", description="KL estimator: k3 (low variance) or the full-vocabulary sum."
    )
    mini_batches: int = Field(1, ge=1, description="Optimiser steps from one rollout.")
    micro_batch_rows: int = Field(8, ge=1, description="Sequences a forward pass.")


class Advantage(Section):
    """Group normalisation (section 4)."""

    std: Literal["sample", "population"] = Field("sample", description="Standard deviation.")
    epsilon: float = Field(1e-6, ge=0, description="ε added to the standard deviation.")


class Curriculum(Section):
    """The Curriculum stage and its reward (section 3)."""

    steps: int = Field(32, ge=1, description="K_C, inner steps.")
    batch_size: int = Field(64, ge=2, description="B, candidate tasks a step.")
    max_new_tokens: int = Field(4096, ge=8, description="New tokens a candidate.")
    w_unc: float = Field(1.0, ge=0, description="Weight of the uncertainty reward.")
    w_tool: float = Field(0.25, ge=0, description="Weight of the tool reward.")
    w_rep: float = Field(0.20, ge=0, description="Weight of the repetition penalty.")
    lambda_ref: float = Field(0.4, ge=0, le=1, description="λ, weight of the reference reward.")
    tool_cap: int = Field(4, ge=1, description="C, tool calls counted a trajectory.")
    repetition_distance: float = Field(
        0.6, ge=0, le=1, description="d_rep, BLEU distance below which tasks are joined."
    )
    clip: float = Field(0.2, gt=0, lt=1, description="GRPO's clip width, both sides.")
    diagnostic_reference: bool = Field(
        True,
        description="With λ = 0, still sample a second Executor group for the gap statistic.",
    )


class Executor(Section):
    """The Executor stage (sections 4 and 5)."""

    steps: int = Field(128, ge=1, description="K_E, inner steps; a multiple of K_C.")
    reference: Literal["anchor", "second_group", "none"] = Field(
        "anchor",
        description="Whose majority the historical term compares with: the anchor's, that of a "
        "second group of the current Executor (a control), or none.",
    )
    alpha: float = Field(0.6, ge=0, le=1, description="α, share of the historical advantage.")
    scale_without_reference: bool = Field(
        False, description="Control: without a reference, multiply the advantage by 1 − α."
    )


class Adpo(Section):
    """Ambiguity-dynamic policy optimisation (section 5)."""

    p_low: float = Field(0.3, ge=0, le=1, description="Agreement at which quality is 0.")
    p_high: float = Field(0.8, ge=0, le=1, description="Agreement at which quality is 1.")
    weight_min: float = Field(0.6, ge=0, le=1, description="Advantage weight at quality 0.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Lower clip width.")
    clip_high: float = Field(0.2, gt=0, description="Upper clip width at quality 1.")
    clip_high_extra: float = Field(0.1, ge=0, description="Added to the upper clip at quality 0.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p_low >= self.p_high:
            raise ValueError(f"p_low {self.p_low} must be below p_high {self.p_high}")
        return self


class Anchor(Section):
    """The frozen reference (section 1)."""

    refresh: Literal["every", "every_k", "never"] = Field(
        "every", description="Refresh each iteration, every k, or keep the base model."
    )
    every_k: int = Field(2, ge=1, description="k of refresh every_k.")
    cache: Literal["curriculum", "resample", "none"] = Field(
        "curriculum",
        description="Anchor groups kept from the Curriculum stage, drawn anew once a task, or "
        "drawn at every inner step.",
    )


class Evaluation(Section):
    """The evaluation stage (section 7)."""

    benchmarks: tuple[str, ...] = Field(("tiny",), min_length=1, description="Benchmark names.")
    files: dict[str, str] = Field(
        {}, description="JSONL or parquet file of a benchmark, by its name."
    )
    limit: int | None = Field(None, ge=1, description="Only the first questions of each benchmark.")
    samples: int = Field(8, ge=0, description="k of mean@k, sampled; 0 leaves it out.")
    temperature: float = Field(1.0, gt=0, description="Temperature of mean@k.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus share of mean@k.")
    reference_scores: dict[str, float] = Field(
        {},
        description="Per cent that the base model should score, by benchmark; empty means the "
        "paper's row of this model. Out of range marks the run as not comparable.",
        json_schema_extra=RECORDED_ONLY,
    )
    reference_tolerance: float = Field(
        2.0,
        gt=0,
        description="Points by which the base model may differ from its reference scores.",
        json_schema_extra=RECORDED_ONLY,
    )


class Gate(Section):
    """What the base model must show before any training."""

    min_mean_at_k: float = Field(0.0, ge=0, le=1, description="Least mean@k of the base model.")
    max_top_answer_share: float = Field(
        1.0, gt=0, le=1, description="Largest share of one answer over different questions."
    )


class Checkpoints(Section):
    """Checkpoints inside a long stage."""

    every: int = Field(
        4, ge=1, description="Inner steps between checkpoints.", json_schema_extra=RECORDED_ONLY
    )


class Alarms(Section):
    """When training counts as collapsed: a warning first, later the end of the stage."""

    patience: int = Field(
        3,
        ge=1,
        description="Bad steps in a row that make a warning.",
        json_schema_extra=RECORDED_ONLY,
    )
    stop_after: int = Field(
        16,
        ge=0,
        description="Collapsed steps in a row that stop the stage: no entropy, no advantage in "
        "any group, or one task over and over; 0 means never.",
        json_schema_extra=RECORDED_ONLY,
    )
    min_entropy: float = Field(
        0.02,
        ge=0,
        description="Entropy of the policy, in nats a token, below which it has collapsed.",
        json_schema_extra=RECORDED_ONLY,
    )
    max_share: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Share of bad groups, tasks or trajectories from which a step is bad: without "
        "an advantage, unresolved, duplicate, or cut short.",
        json_schema_extra=RECORDED_ONLY,
    )


class Trainer(Section):
    """Which machinery trains and samples, and where it runs."""

    backend: Literal["torch", "verl"] = Field(
        "torch",
        description="torch: embedded, one process and device. verl: FSDP2, vLLM and Ray on GPUs.",
    )
    verl: dict[str, Any] = Field(
        {}, description="Further settings of verl, by their dotted names; they win over ours."
    )
    python: str = Field(
        ".venv-verl/bin/python",
        description="Interpreter of verl's environment, for stages that run on this machine; "
        "relative paths start at the project.",
        json_schema_extra=RECORDED_ONLY,
    )
    nodes: int = Field(1, ge=1, description="Machines.", json_schema_extra=RECORDED_ONLY)
    gpus_per_node: int = Field(
        8, ge=1, description="GPUs of each machine.", json_schema_extra=RECORDED_ONLY
    )
    scoring_gpus: int | None = Field(
        None,
        ge=0,
        description="GPUs, of all machines together, on which frozen Executors play while an agent "
        "trains on the rest; 0 means that they share all GPUs in turns, asleep in between. Empty "
        "means half of them, or 0 where half does not hold the frozen Executors.",
        json_schema_extra=RECORDED_ONLY,
    )
    gpus_per_copy: int = Field(
        1,
        ge=1,
        description="GPUs that hold one sampling copy of the weights (tensor parallel).",
        json_schema_extra=RECORDED_ONLY,
    )
    deadline_seconds: float = Field(
        7200.0,
        gt=0,
        description="Longest that one rollout, update or start of an engine may take.",
        json_schema_extra=RECORDED_ONLY,
    )


class ExperimentConfig(Section):
    """One experiment: a method on a backbone with a seed."""

    profile: str = Field("tiny", description="Model and scale.", json_schema_extra=RECORDED_ONLY)
    method: str = Field(
        "anchorloop", description="What is compared.", json_schema_extra=RECORDED_ONLY
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Seed from which all randomness derives.")
    iterations: int = Field(3, ge=0, le=100, description="T, outer iterations.")
    trainer: Trainer = Trainer()
    model: Model = Model()
    prompts: Prompts = Prompts()
    rollout: Rollout = Rollout()
    sandbox: SandboxSettings = Field(SandboxSettings(), description="Limits of a tool call.")
    curriculum: Curriculum = Curriculum()
    executor: Executor = Executor()
    adpo: Adpo = Adpo()
    advantage: Advantage = Advantage()
    optimiser: Optimiser = Optimiser()
    anchor: Anchor = Anchor()
    evaluation: Evaluation = Evaluation()
    gate: Gate = Gate()
    checkpoints: Checkpoints = Checkpoints()
    alarms: Alarms = Alarms()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        k_c, k_e = self.curriculum.steps, self.executor.steps
        if k_e % k_c:
            raise ValueError(
                f"executor.steps (K_E) {k_e} must be a multiple of curriculum.steps (K_C) {k_c}"
            )
        if (
            self.executor.reference == "anchor"
            and self.anchor.cache == "curriculum"
            and self.curriculum.lambda_ref == 0
        ):
            raise ValueError(
                "anchor.cache 'curriculum' keeps the Curriculum's anchor groups, and with "
                "curriculum.lambda_ref 0 it samples none; set anchor.cache to 'resample'"
            )
        if self.trainer.backend == "verl" and self.optimiser.kl != "k3":
            raise ValueError(
                f"optimiser.kl '{self.optimiser.kl}' needs the whole vocabulary of every token, "
                "which verl's workers do not hand out; set optimiser.kl to 'k3'"
            )
        if self.rollout.max_context_tokens <= self.curriculum.max_new_tokens:
            raise ValueError(
                f"curriculum.max_new_tokens {self.curriculum.max_new_tokens} must be below "
                f"rollout.max_context_tokens {self.rollout.max_context_tokens}"
            )
        return self


def backend_module(name: str) -> str:
    """Module of a backend, imported by name since its libraries may be absent elsewhere."""
    return f"training.trainers.{name}.backend"


def identity_dump(section: BaseModel) -> dict[str, Any]:
    """Dump of a section without the fields that only say where or how fast (``recorded_only``)."""
    out: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("recorded_only"):
            continue
        value = getattr(section, name)
        out[name] = identity_dump(value) if isinstance(value, BaseModel) else value
    return out
