"""The Curriculum stage: K_C inner steps of GRPO on the Curriculum agent alone.

docs/method.md section 3. The Executor and its anchor are fixed; they only judge the candidates.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from training.algorithms.candidate import Candidate, read_candidate
from training.algorithms.curriculum_reward import CandidateScore, score_batch
from training.config import Advantage, Checkpoints, Curriculum, Model, Rollout
from training.errors import InfraError
from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Trajectory
from training.seeds import derive_seed
from training.stages.base import StageContext, StageResult, read_jsonl
from training.trainers.backends import Policy, open_backend
from training.trainers.common import InfraGuard, prompt_book
from training.trainers.curriculum_records import (
    candidate_line,
    group_line,
    rollouts,
    summarise,
)
from training.trainers.judges import Judgement, Judges
from training.trainers.samples import Sample
from training.trainers.step_log import StepLog

CANDIDATES, ANCHOR_GROUPS = "candidates.jsonl", "anchor_groups.jsonl"


def run_curriculum(ctx: StageContext) -> StageResult:
    """Train the Curriculum and publish `model/`, `candidates.jsonl` and the anchor's groups.

    Inputs: `curriculum` (weights to train), `executor` (judges), `base` (reference of the KL) and,
    where the reward has a reference term, `frozen` (the anchor's weights).
    """
    return asyncio.run(_CurriculumStage(ctx).run())


class _CurriculumStage:
    def __init__(self, ctx: StageContext) -> None:
        self.ctx = ctx
        self.settings = ctx.section(Curriculum)
        self.rollout = ctx.section(Rollout)
        self.advantage = ctx.section(Advantage)
        tokenizer = load_tokenizer(
            ctx.input("curriculum") / "model", remote_code=ctx.section(Model).remote_code
        )
        self.prompts = prompt_book(ctx, tokenizer)
        self.sampling = Sampling(
            temperature=self.rollout.temperature,
            top_p=self.rollout.top_p,
            max_turns=1,
            max_turn_tokens=self.settings.max_new_tokens,
            max_context_tokens=self.rollout.max_context_tokens,
        )
        self.guard = InfraGuard(self.rollout.max_infra_share)
        self.candidates = StepLog(ctx.work / CANDIDATES)
        self.anchor_groups = StepLog(ctx.work / ANCHOR_GROUPS)

    async def run(self) -> StageResult:
        steps, every = self.settings.steps, self.ctx.section(Checkpoints).every
        async with open_backend(self.ctx) as backend:
            policy = await backend.policy("curriculum")
            first = await policy.restore()
            for log in (self.candidates, self.anchor_groups):
                log.cut(first)
            self.ctx.resume_metrics(first)
            judges = await Judges.gather(self.ctx, backend, self.prompts)
            for step in range(first, steps):
                self.ctx.progress(step, steps)
                self.ctx.log_metrics(step, await self._step(step, policy, judges))
                if (step + 1) % every == 0:
                    self.candidates.sync()
                    self.anchor_groups.sync()
                    await policy.save(step + 1)
            await policy.publish(self.ctx.payload / "model")
        self.ctx.progress(steps, steps)
        return self._publish()

    async def _step(self, step: int, policy: Policy, judges: Judges) -> dict[str, float | None]:
        """Write, judge, score and learn from one batch; returns the metrics of the step."""
        clock = time.monotonic()
        written = await self._write(step, policy)
        seconds = {"seconds_writing": time.monotonic() - clock}
        read = [read_candidate(trajectory.text) for trajectory in written]
        problems = {i: c.problem for i, c in enumerate(read) if c.r_fmt and c.problem}
        judged, spent = await judges.judge(step, problems)
        seconds |= spent

        clock = time.monotonic()
        kept = [
            i
            for i, trajectory in enumerate(written)
            if trajectory.status is not Status.INFRA and (i not in problems or i in judged)
        ]
        if not kept:
            raise InfraError(f"no candidate of step {step} was sampled whole; look at the log")
        scores = dict(zip(kept, self._score(kept, read, judged, judges), strict=True))
        learnt = await policy.step(
            [[Sample(written[i], scores[i].advantage, self.settings.clip)] for i in kept],
            derive_seed(*self._parts(step), "mini_batches"),
        )
        seconds["seconds_update"] = time.monotonic() - clock

        lines = [
            candidate_line(i, t, c, scores.get(i), judged.get(i))
            for i, (t, c) in enumerate(zip(written, read, strict=True))
        ]
        self.candidates.append(step, lines)
        if judges.enters_reward:
            anchored = [(i, judgement.reference) for i, judgement in judged.items()]
            self.anchor_groups.append(
                step, [{"index": i, **group_line(group)} for i, group in anchored if group]
            )
        return {**summarise(lines), **learnt, **seconds}

    async def _write(self, step: int, policy: Policy) -> list[Trajectory]:
        """B candidates from the policy, each from its own seed; some may have status infra."""
        count = self.settings.batch_size
        tasks = [Task(f"b{step}-{i}", self.prompts.curriculum) for i in range(count)]
        seeds = [derive_seed(*self._parts(step), "write", i) for i in range(count)]
        groups = await policy.rollout(tasks, 1, self.sampling, seeds)
        self.guard.complete(groups)
        return [trajectory for group in groups for trajectory in group]

    def _score(
        self,
        kept: Sequence[int],
        read: Sequence[Candidate],
        judged: Mapping[int, Judgement],
        judges: Judges,
    ) -> list[CandidateScore]:
        return score_batch(
            [read[i] for i in kept],
            [rollouts(judged.get(i), judges.enters_reward) for i in kept],
            w_unc=self.settings.w_unc,
            w_tool=self.settings.w_tool,
            w_rep=self.settings.w_rep,
            lambda_ref=self.settings.lambda_ref,
            tool_cap=self.settings.tool_cap,
            repetition_distance=self.settings.repetition_distance,
            std=self.advantage.std,
            eps=self.advantage.epsilon,
        )

    def _parts(self, step: int) -> tuple[int | str, ...]:
        return (self.ctx.seed, "curriculum", self.ctx.iteration, step)

    def _publish(self) -> StageResult:
        for log in (self.candidates, self.anchor_groups):
            (self.ctx.payload / log.path.name).write_bytes(log.path.read_bytes())
        lines = read_jsonl(self.candidates.path)
        return StageResult(
            metrics=summarise(lines),
            planned_steps=self.settings.steps,
            final_step=len({line["step"] for line in lines}),
        )
