"""The three sources of the anchor's labels give one distribution, by the embedded engine."""

import asyncio
from pathlib import Path

import pytest
from label_sources import BATCHES, Counts, Sources, chance
from trainer_world import World, write_base_model

from training.sandbox.isolation import SandboxError, choose
from training.sandbox.settings import SandboxSettings
from training.trainers.backends import open_backend

try:
    choose(SandboxSettings(isolation="bubblewrap"))
    MISSING = ""
except SandboxError as error:
    MISSING = str(error)
pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


async def draw(world: World, base: str) -> tuple[list[Counts], Counts]:
    """The labels by each source, and by `resample` at a higher temperature."""
    sources = Sources(world, base, None)  # type: ignore[arg-type]
    async with open_backend(sources.context("anchor_cache", sources.frozen)) as backend:
        sources.sampler = await backend.frozen(world.store.place(base).artifact)
        alike = [await sources.kept(), await sources.drawn(), await sources.live()]
        return alike, await sources.drawn(temperature=1.0)


def test_the_sources_agree(tmp_path: Path) -> None:
    write_base_model(tmp_path / "model")
    world = World(tmp_path / "store")
    alike, warmer = asyncio.run(draw(world, world.base(tmp_path / "model")))
    for counts in alike:
        assert all(count.total() == 8 * BATCHES for count in counts.values())
    assert all(a != b for a in alike for b in alike if a is not b), "they are the same draws"
    assert chance(*alike) > 0.01
    assert chance(alike[0], warmer) < 1e-6, "the test would not see a difference"
