"""The Executor stage: K_E inner steps of ADPO on the Executor alone.

docs/method.md sections 1, 4 and 5. The task pool is fixed; the current group is sampled again at
every step from the policy as it is then.
"""

import asyncio
import json
import time
from typing import Any

from training.config import Adpo, Advantage, Checkpoints, Executor, Model
from training.errors import ConfigError
from training.models import load_tokenizer
from training.rollout.trajectory import Trajectory
from training.seeds import derive_seed
from training.stages.base import StageContext, StageResult, read_jsonl
from training.trainers.backends import Policy, open_backend
from training.trainers.executor_groups import assess, summarise
from training.trainers.players import Players
from training.trainers.samples import Sample
from training.trainers.step_log import StepLog

LEDGER, TRANSCRIPTS = "ledger.jsonl", "transcripts.jsonl"

Record = dict[str, Any]


def run_executor(ctx: StageContext) -> StageResult:
    """Train the Executor and publish `model/`, `ledger.jsonl` and `transcripts.jsonl`.

    The ledger has a line a group; the transcripts are those of one group a step, so that a person
    can read what was sampled without all of it being kept.

    Inputs: `executor` (weights to train), `base` (reference of the KL), `task_pool`, and for the
    anchor's votes either `anchor_cache` or `frozen` (the anchor's weights, sampled at each step).
    """
    return asyncio.run(_ExecutorStage(ctx).run())


def batch_of(step: int, batches: int, steps: int) -> int:
    """The batch of inner step j, from 0: floor(j · K_C / K_E).

    Raises `ConfigError` where K_E is not a multiple of K_C.
    """
    if steps % batches:
        raise ConfigError(
            f"executor.steps (K_E) {steps} is not a multiple of the pool's {batches} batches"
        )
    return step * batches // steps


class _ExecutorStage:
    def __init__(self, ctx: StageContext) -> None:
        self.ctx = ctx
        self.settings = ctx.section(Executor)
        self.adpo = ctx.section(Adpo)
        self.advantage = ctx.section(Advantage)
        self.tokenizer = load_tokenizer(
            ctx.input("executor") / "model", remote_code=ctx.section(Model).remote_code
        )
        pool = ctx.input("task_pool")
        self.batches: int = json.loads((pool / "pool.json").read_text("utf-8"))["batches"]
        self.tasks = read_jsonl(pool / "tasks.jsonl")
        self.ledger = StepLog(ctx.work / LEDGER)
        self.transcripts = StepLog(ctx.work / TRANSCRIPTS)

    async def run(self) -> StageResult:
        steps, every = self.settings.steps, self.ctx.section(Checkpoints).every
        async with open_backend(self.ctx) as backend:
            policy = await backend.policy("executor")
            done = await policy.restore()
            for log in (self.ledger, self.transcripts):
                log.cut(done)
            self.ctx.resume_metrics(done)
            players = await Players.gather(self.ctx, backend, policy, self.tokenizer)
            while done < steps:
                self.ctx.progress(done, steps)
                self.ctx.log_metrics(done, await self._step(done, policy, players))
                done += 1
                if done % every == 0:
                    self.ledger.sync()
                    self.transcripts.sync()
                    await policy.save(done)
            await policy.publish(self.ctx.payload / "model")
        self.ctx.progress(steps, steps)
        return self._publish(done)

    async def _step(self, step: int, policy: Policy, players: Players) -> dict[str, float | None]:
        """Sample, vote and learn from one batch; returns the metrics of the step.

        A batch with no included task makes no update, and its metrics have no loss.
        """
        clock = time.monotonic()
        batch = batch_of(step, self.batches, self.settings.steps)
        tasks = [task for task in self.tasks if task["batch"] == batch]
        groups, references = await players.play(step, tasks)
        seconds = {"seconds_sampling": time.monotonic() - clock}

        clock = time.monotonic()
        lines: list[Record] = []
        included: list[list[Sample]] = []
        historical = self.settings.reference != "none"
        for task in tasks:
            line: Record = {"task": task["id"], "batch": batch}
            group, reference = groups.get(task["id"]), references.get(task["id"])
            if group is None or (reference is None and historical):
                lines.append({**line, "outcome": "infra"})
                continue
            labels = [t.label for t in group]
            judged = assess(labels, reference, self.settings, self.adpo, self.advantage)
            lines.append(
                line
                | judged.record(labels, reference)
                | {"tool_calls": [trajectory.n_tool for trajectory in group]}
                | {"truncated": [trajectory.truncated for trajectory in group]}
            )
            if judged.outcome == "included":
                pairs = zip(group, judged.advantages, strict=True)
                included.append([Sample(t, a, judged.clip_high) for t, a in pairs])
        learnt: dict[str, float] = {}
        if included:
            parts = (self.ctx.seed, "executor", self.ctx.iteration, step, "mini_batches")
            learnt = await policy.step(included, derive_seed(*parts))
        seconds["seconds_update"] = time.monotonic() - clock
        self.ledger.append(step, lines)
        for name, group in list(groups.items())[:1]:
            self.transcripts.append(step, [self._transcript(name, t) for t in group])
        return {**summarise(lines), **learnt, **seconds}

    def _transcript(self, task: str, trajectory: Trajectory) -> Record:
        """What one trajectory looked like, observations included."""
        return {
            "task": task,
            "text": self.tokenizer.decode(trajectory.output_ids),
            "status": trajectory.status.value,
            "label": trajectory.label,
            "reason": trajectory.reason,
            "stop": trajectory.stop.value,
        }

    def _publish(self, done: int) -> StageResult:
        for log in (self.ledger, self.transcripts):
            (self.ctx.payload / log.path.name).write_bytes(log.path.read_bytes())
        lines = read_jsonl(self.ledger.path)
        updated = {line["step"] for line in lines if line["outcome"] == "included"}
        return StageResult(
            metrics={**summarise(lines), "empty_steps": self.settings.steps - len(updated)},
            planned_steps=self.settings.steps,
            final_step=done,
        )
