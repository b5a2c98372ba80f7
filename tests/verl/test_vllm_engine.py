"""A real vLLM engine through the tool loop: calls happen, observations are masked, seeds decide.

One engine serves all tests: it takes longer to start than to answer.
"""

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import scripted
from transformers import PreTrainedTokenizerFast

from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Status, Stop, Trajectory
from training.rollout.vllm_engine import VllmEngine, VllmSettings
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

pytestmark = [pytest.mark.verl, pytest.mark.timeout(240)]
SETTINGS = VllmSettings(
    dtype="float32", max_context_tokens=128, max_rows=32, plain=True, deadline_seconds=60.0
)


@dataclass(frozen=True)
class Answers:
    """What the engine gave: groups of 16, one a seed."""

    words: PreTrainedTokenizerFast
    once: list[Trajectory]
    again: list[Trajectory]
    fewer: list[Trajectory]
    tempered: list[Trajectory]
    greedy: list[Trajectory]
    rested: list[Trajectory]
    answered_asleep: bool
    metrics: dict[str, float]

    def first(self, t: Trajectory) -> str:
        return str(self.words.convert_ids_to_tokens(t.output_ids[0]))


async def ask(folder: Path) -> Answers:
    words = load_tokenizer(folder)
    base = Sampling(max_turns=3, max_turn_tokens=16)
    async with Sandbox(SandboxSettings(workers=1)) as box, VllmEngine(folder, SETTINGS) as engine:
        loop = ToolLoop(words, engine, box, max_observation_tokens=32)

        async def groups(seeds: list[int], sampling: Sampling = base) -> list[Trajectory]:
            tasks = [Task(str(seed), words.encode("4?")) for seed in seeds]
            return [t for g in await loop.rollout(tasks, 16, sampling, seeds) for t in g]

        async def while_asleep() -> tuple[list[Trajectory], bool]:
            await engine.sleep()
            asked = asyncio.create_task(groups([1]))
            answered = bool((await asyncio.wait([asked], timeout=2))[0])
            await engine.wake()
            return await asked, answered

        return Answers(
            words,
            await groups([1, 2, 3, 4]),
            await groups([1, 2, 3, 4]),
            await groups([1]),
            await groups([5, 6], replace(base, temperature=0.5)),
            await groups([5], replace(base, temperature=0.0)),
            *await while_asleep(),
            engine.metrics(),
        )


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("scripted")
    scripted.write_model(folder)
    return asyncio.run(ask(folder))


def test_calls_happen_and_are_masked(answers: Answers) -> None:
    called = [t for t in answers.once if t.n_tool]
    assert 16 <= len(called) <= 48
    for t in called:
        assert (t.stop, t.status, t.turns, t.n_tool) == (Stop.EOS, Status.VALID, 2, 1)
        seen = [i for i, m in zip(t.output_ids, t.mask, strict=True) if not m]
        assert answers.words.decode(seen) == "\n<output>42</output>\n"
        assert all(p == 0.0 for p, m in zip(t.logprobs, t.mask, strict=True) if not m)
        assert "<output>" not in t.text
    assert Counter(t.label for t in called).most_common(1)[0][0] == "42"
    assert all(t.output_ids[-1] == answers.words.eos_token_id for t in answers.once)
    generated = sum(sum(t.mask) for t in answers.once)
    assert answers.metrics["generated_tokens"] > 2 * generated


def test_seeds_decide_whatever_else_is_in_flight(answers: Answers) -> None:
    assert [t.output_ids for t in answers.once] == [t.output_ids for t in answers.again]
    assert [t.output_ids for t in answers.once[:16]] == [t.output_ids for t in answers.fewer]
    assert len({tuple(t.output_ids) for t in answers.once}) > 2


@pytest.mark.parametrize("part", ["once", "tempered"])
def test_log_probabilities_are_those_before_temperature(answers: Answers, part: str) -> None:
    for t in getattr(answers, part):
        share = scripted.SCRIPT["?"][answers.first(t)]
        assert t.logprobs[0] == pytest.approx(math.log(share), abs=1e-3)
    shares = [
        Counter(map(answers.first, ts))["<python>"] / len(ts)
        for ts in (answers.once, answers.tempered)
    ]
    assert shares[0] < shares[1]  # a lower temperature prefers what is likely


def test_greedy_takes_the_likeliest_token(answers: Answers) -> None:
    assert {(t.label, t.n_tool) for t in answers.greedy} == {("42", 1)}


def test_what_is_asked_of_a_sleeping_engine_waits_until_it_wakes_up(answers: Answers) -> None:
    assert not answers.answered_asleep
    assert [t.output_ids for t in answers.rested] == [t.output_ids for t in answers.fewer]
