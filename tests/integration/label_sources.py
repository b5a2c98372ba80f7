"""Anchor labels of a fixed pool by each of the three sources, and whether they agree.

All three draw from one sampler of the frozen model, by the code that the stages run.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trainer_world import World, lines

from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Trajectory
from training.spec import StageSpec
from training.stages import task_pool
from training.stages.base import StageContext
from training.tiny_world.sets import problem_set
from training.trainers.anchor_groups import draw_groups
from training.trainers.backends import Sampler
from training.trainers.common import prompt_book
from training.trainers.curriculum_records import group_line
from training.trainers.judges import Judges
from training.trainers.players import Players

PROBLEMS = [problem["problem"] for problem in problem_set("development")[:4]]
BATCHES = 12
TEMPERATURE = 0.15  # at which a small model has some answers that it often gives
SETTINGS: dict[str, Any] = {
    "rollout": {"group_size": 8, "temperature": TEMPERATURE},
    "curriculum": {"steps": BATCHES, "batch_size": len(PROBLEMS)},
    "executor": {"steps": BATCHES},
}

Counts = dict[str, Counter[str | None]]
"""By problem, how often each label was drawn."""


class Nobody:
    """Stands for the agent, whose own groups do not matter here."""

    async def rollout(
        self, tasks: Sequence[Task], group_size: int, sampling: Sampling, seeds: Sequence[int]
    ) -> list[list[Trajectory]]:
        return [[] for _ in tasks]


class Sources:
    """Draws the labels of every problem in every batch."""

    def __init__(self, world: World, base: str, sampler: Sampler) -> None:
        self.world, self.sampler = world, sampler
        anchor = world.publish("anchor", lambda payload: (payload / "anchor.json").write_text("{}"))
        self.frozen = {"anchor": anchor, "frozen": base, "executor": base, "base": base}
        self.words = load_tokenizer(world.store.place(base).artifact / "model")

    async def kept(self) -> Counts:
        """Source `curriculum`: what judged the Curriculum, through its records and the cache."""
        ctx = self.context("curriculum", {**self.frozen, "curriculum": self.frozen["base"]})
        judges = Judges(ctx, prompt_book(ctx, self.words), self.sampler, self.sampler)
        candidates, groups = [], []
        for step in range(BATCHES):
            judged, _ = await judges.judge(step, dict(enumerate(PROBLEMS)))
            for index, judgement in judged.items():
                assert judgement.reference is not None
                line = {"step": step, "index": index}
                candidates.append(line | {"r_fmt": 1, "problem": PROBLEMS[index]})
                groups.append(line | group_line(judgement.reference))

        def fill(payload: Path) -> None:
            for name, records in (("candidates", candidates), ("anchor_groups", groups)):
                text = "".join(json.dumps(record) + "\n" for record in records)
                (payload / f"{name}.jsonl").write_text(text)

        written = self.world.publish("curriculum", fill, steps=BATCHES)
        pool = self.world.spec("task_pool", {"curriculum": written})
        cache = self.world.spec(
            "anchor_cache",
            {"task_pool": pool.identity, "curriculum": written},
            {**SETTINGS, "anchor": {"cache": "curriculum"}},
        )
        tasks = lines(self.world.run_here(pool) / "tasks.jsonl")
        anchors = lines(self.world.run_here(cache) / "anchors.jsonl")
        return _counts(tasks, {line["task"]: line["labels"] for line in anchors})

    async def drawn(self, temperature: float = TEMPERATURE) -> Counts:
        """Source `resample`."""
        changes = {"rollout": {"temperature": temperature}}
        ctx = self.context("anchor_cache", self.frozen, changes)
        found = await draw_groups(ctx, _tasks(), self.sampler)
        return _counts(_tasks(), {name: line["labels"] for name, line in found.items()})

    async def live(self) -> Counts:
        """Source `none`: drawn at every step of the Executor stage."""
        ctx = self.context("executor", self.frozen, {"anchor": {"cache": "none"}})
        players = Players(ctx, self.words, Nobody(), self.sampler)  # type: ignore[arg-type]
        labels: dict[str, Sequence[str | None]] = {}
        for step in range(BATCHES):
            _, found = await players.play(step, [t for t in _tasks() if t["batch"] == step])
            labels |= found
        return _counts(_tasks(), labels)

    def context(
        self, stage: str, inputs: Mapping[str, str], changes: Mapping[str, Any] | None = None
    ) -> StageContext:
        spec: StageSpec = self.world.spec(stage, inputs, {**SETTINGS, **_over(changes or {})})
        self.world.store.place(spec.identity).work.mkdir(parents=True, exist_ok=True)
        return StageContext(spec, self.world.store, 1)


def _over(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**SETTINGS.get(name, {}), **values} for name, values in changes.items()}


def _tasks() -> list[dict[str, Any]]:
    return [
        {"id": task_pool.task_id(batch, i), "batch": batch, "problem": problem}
        for batch in range(BATCHES)
        for i, problem in enumerate(PROBLEMS)
    ]


def _counts(
    tasks: Sequence[Mapping[str, Any]], labels: Mapping[str, Sequence[str | None]]
) -> Counts:
    counts: Counts = {problem: Counter() for problem in PROBLEMS}
    for task in tasks:
        counts[task["problem"]].update(labels[task["id"]])
    return counts


def chance(*sources: Counts) -> float:
    """How likely it is that sources of one distribution differ by so much (chi-square).

    Labels that few drew are counted as one.
    """
    statistic, freedom = 0.0, 0
    for problem in PROBLEMS:
        rows = [source[problem] for source in sources]
        total = sum(rows, Counter())
        common = [label for label, n in total.items() if n >= 5 * len(sources)]
        table = [[row[label] for label in common] for row in rows]
        rest = [row.total() - sum(cells) for row, cells in zip(rows, table, strict=True)]
        if sum(rest):
            table = [[*cells, left] for cells, left in zip(table, rest, strict=True)]
        grid = torch.tensor(table, dtype=torch.float64)
        expected = grid.sum(1, keepdim=True) * grid.sum(0) / grid.sum()
        statistic += float(((grid - expected) ** 2 / expected).sum())
        freedom += (grid.shape[0] - 1) * (grid.shape[1] - 1)
    assert freedom > 2, "no label was drawn often enough"
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
