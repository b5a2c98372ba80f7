"""Our tool loop on vLLM against raw generation of the same tokens, in one run.

Run it with verl's environment:

    PYTHONPATH=.:tests/verl .venv-verl/bin/python benchmarks/gpu/vllm_loop.py

The model is a script: some filler, one call in most trajectories, some filler, an answer. Raw
generation is given as many rows, each as long as a trajectory's generated tokens, with and without
a seed a row: vLLM draws seeded rows one by one, which is a price of seeds and not of the loop.
Aims: at least 0.9 of raw speed, and at least 0.8 of the own speed when every tool answer comes
0.5 s later.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import scripted
from cpu_settings import ENVIRONMENT

from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Trajectory
from training.rollout.vllm_engine import VllmEngine, VllmSettings
from training.sandbox.verdict import CallResult, Verdict

ROWS, ROUNDS = 256, 3
FILLER = 0.98
SETTINGS = VllmSettings(
    dtype="float32", max_context_tokens=768, max_rows=ROWS, plain=True, deadline_seconds=600.0
)


class Tool:
    """Answers 42 after a delay, in place of the sandbox, whose speed is measured elsewhere."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    async def run(self, code: str) -> CallResult:
        await asyncio.sleep(self.delay)
        return CallResult(Verdict.OK, "42\n", 0, None, self.delay, False, "")


def script() -> dict[str, dict[str, float]]:
    """The tests' script with filler before the call and after the observation."""
    made = {last: dict(following) for last, following in scripted.SCRIPT.items()}
    made["?"] = {"4": 1.0}
    made["4"] = {"4": FILLER, "<python>": 1 - FILLER}
    made["\n"] = {"2": 1.0}
    made["2"] = {"2": FILLER, "Final Answer: 42": 1 - FILLER}
    return made


async def loop_speed(
    engine: VllmEngine, folder: Path, delay: float
) -> tuple[float, list[Trajectory]]:
    """Best trajectories a second of some rounds, and the last round's trajectories."""
    words = load_tokenizer(folder)
    loop = ToolLoop(words, engine, Tool(delay), max_observation_tokens=32)
    prompt = words.encode("?")
    best, found = 0.0, list[Trajectory]()
    for number in range(ROUNDS):
        started = time.monotonic()
        groups = await loop.rollout(
            [Task("t", prompt)], ROWS, Sampling(max_turns=3, max_turn_tokens=300), [number]
        )
        best, found = max(best, ROWS / (time.monotonic() - started)), groups[0]
    return best, found


async def raw_speed(
    engine: VllmEngine, folder: Path, lengths: Sequence[int], seeded: bool
) -> float:
    """Best rows a second of plain generation with these lengths."""
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    prompt = TokensPrompt(prompt_token_ids=load_tokenizer(folder).encode("?"))

    async def row(name: str, length: int, seed: int | None) -> None:
        params = SamplingParams(
            max_tokens=length,
            ignore_eos=True,
            logprobs=0,
            seed=seed,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async for _ in engine._server.generate(prompt, params, name):
            pass

    best = 0.0
    for number in range(ROUNDS):
        started = time.monotonic()
        names = [f"raw-{seeded}-{number}-{i}" for i in range(len(lengths))]
        seeds = [i if seeded else None for i in range(len(lengths))]
        await asyncio.gather(*map(row, names, lengths, seeds))
        best = max(best, len(lengths) / (time.monotonic() - started))
    return best


async def main() -> None:
    """Measure and print one line of JSON."""
    os.environ |= {name: value for name, value in ENVIRONMENT.items() if name.startswith("VLLM_")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripted.write_model(folder, script(), positions=1024)
        async with VllmEngine(folder, SETTINGS) as engine:
            await loop_speed(engine, folder, 0.0)  # warm up
            fast, trajectories = await loop_speed(engine, folder, 0.0)
            lengths = [sum(t.mask) for t in trajectories]
            raw = await raw_speed(engine, folder, lengths, seeded=True)
            unseeded = await raw_speed(engine, folder, lengths, seeded=False)
            slow, _ = await loop_speed(engine, folder, 0.5)
    print(
        json.dumps(
            {
                "trajectories_per_second": round(fast, 1),
                "raw_per_second": round(raw, 1),
                "loop_to_raw": round(fast / raw, 3),
                "loop_to_unseeded_raw": round(fast / unseeded, 3),
                "delayed_to_undelayed": round(slow / fast, 3),
                "tokens_a_trajectory": sum(sum(t.mask) for t in trajectories) / ROWS,
                "calls_a_trajectory": sum(t.n_tool for t in trajectories) / ROWS,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
