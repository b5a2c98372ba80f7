"""The turn loop with both real parts: the embedded engine and the isolated sandbox."""

import asyncio

import pytest
from rollout_parts import byte_tokenizer, chain_model, token

from training.rollout.engine import Sampling
from training.rollout.observation import OBSERVATION
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Status, Trajectory
from training.rollout.transformers_engine import TransformersEngine
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import choose
from training.sandbox.settings import SandboxSettings

CODE = {
    "print(3+4)": ("ok", "7"),
    "print('half', 1/0)": ("error", "[The code stopped with an error.]"),
    "print(5, flush=True)\nwhile True: pass": (
        "timeout",
        "5\n[The code ran out of time and was stopped.]",
    ),
}
SETTINGS = SandboxSettings(isolation="bubblewrap", workers=2, wall_seconds=5.0)


def sample(codes: tuple[str, ...], rows: int) -> list[Trajectory]:
    tokenizer = byte_tokenizer("<python>", "</python>", "<output>", "Final Answer: 7", *codes)
    successors: dict[str, str | tuple[str, ...]] = {"q": "<python>", "<python>": codes}
    successors.update(dict.fromkeys(codes, "</python>"))
    model = chain_model(tokenizer, {**successors, "\n": "Final Answer: 7"})
    engine = TransformersEngine(model, tokenizer, grace_seconds=0.2)
    task = Task("t", (token(tokenizer, "q"),))

    async def go() -> list[Trajectory]:
        async with Sandbox(SETTINGS) as sandbox:
            loop = ToolLoop(tokenizer, engine, sandbox)
            (group,) = await loop.rollout([task], rows, Sampling(), [3])
        for trajectory in group:
            (call,) = trajectory.calls
            seen = [i for i, m in zip(trajectory.output_ids, trajectory.mask, strict=True) if not m]
            code = trajectory.text.removeprefix("<python>").partition("</python>")[0]
            verdict, stdout = CODE[code]
            assert call.verdict == verdict
            assert tokenizer.decode(seen) == OBSERVATION.format(stdout=stdout)
        return group

    try:
        choose(SETTINGS)
    except SandboxError as error:
        pytest.skip(f"no isolation here: {error}")
    return asyncio.run(asyncio.wait_for(go(), 300))


def test_real_calls_through_the_whole_loop() -> None:
    group = sample(tuple(CODE), 12)
    assert {call.verdict for row in group for call in row.calls} == {"ok", "error", "timeout"}
    assert {row.status for row in group} == {Status.VALID}
    assert {row.label for row in group} == {"7"}
    assert all(row.n_tool == 1 and row.turns == 2 for row in group)


def test_a_repeated_rollout_is_equal_bit_for_bit() -> None:
    first, second = (sample(("print(3+4)", "print('half', 1/0)"), 40) for _ in range(2))
    for row in (*first, *second):
        for call in row.calls:
            call.seconds = 0.0
    assert first == second
