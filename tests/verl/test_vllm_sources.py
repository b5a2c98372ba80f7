"""The three sources of the anchor's labels give one distribution, by a real vLLM engine."""

import asyncio
from pathlib import Path

import pytest
from label_sources import BATCHES, Counts, Sources, chance
from trainer_world import World

from training.models import load_tokenizer
from training.rollout.tool_loop import ToolLoop
from training.rollout.vllm_engine import VllmEngine, VllmSettings
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

pytestmark = [pytest.mark.verl, pytest.mark.timeout(400)]
SETTINGS = VllmSettings(
    dtype="float32", max_context_tokens=160, max_rows=32, plain=True, deadline_seconds=60.0
)


async def draw(world: World, base: str) -> tuple[list[Counts], Counts]:
    """The labels by each source, and by `resample` at a higher temperature."""
    folder = world.store.place(base).artifact / "model"
    async with Sandbox(SandboxSettings(workers=1)) as box, VllmEngine(folder, SETTINGS) as engine:
        loop = ToolLoop(load_tokenizer(folder), engine, box, max_observation_tokens=40)
        sources = Sources(world, base, loop)
        alike = [await sources.kept(), await sources.drawn(), await sources.live()]
        return alike, await sources.drawn(temperature=1.0)


def test_the_sources_agree(tmp_path: Path, base_model: Path) -> None:
    world = World(tmp_path / "store")
    alike, warmer = asyncio.run(draw(world, world.base(base_model)))
    for counts in alike:
        assert all(count.total() == 8 * BATCHES for count in counts.values())
    assert all(a != b for a in alike for b in alike if a is not b), "they are the same draws"
    assert chance(*alike) > 0.01
    assert chance(alike[0], warmer) < 1e-6, "the test would not see a difference"
