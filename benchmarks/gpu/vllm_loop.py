"""Our tool loop on vLLM against raw generation of the same tokens, in one run.

Run it with verl's environment:

    PYTHONPATH=.:tests/verl .venv-verl/bin/python benchmarks/gpu/vllm_loop.py

The model is a script: some filler, one call in most trajectories, some filler, an answer. Raw
generation is given as many rows, each as long as a trajectory's generated tokens, with and without
a seed a row: vLLM draws seeded rows one by one, which is a price of seeds and not of the loop.
Every round measures each kind once, in shuffled order, and gives a ratio; the line at the end has
the median and the quartiles of the rounds' ratios.
Aims: at least 0.9 of raw speed, and at least 0.8 of the own speed when every tool answer comes
0.5 s later.
"""

import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import scripted
from cpu_settings import ENVIRONMENT

from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Trajectory
from training.rollout.vllm_engine import VllmEngine, VllmSettings
from training.sandbox.verdict import CallResult, Verdict

ROWS, WARM_UP, ROUNDS = 1024, 1, 8
DELAY_S = 0.5
FILLER = 0.98
KEPT = ("VLLM_", "OMP_")  # of the environment of tests, so that one core is left for the loop
SETTINGS = VllmSettings(
    dtype="float32", max_context_tokens=768, max_rows=256, plain=True, deadline_seconds=600.0
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


class Bench:
    """Four ways to have the same tokens sampled; each answers how many rows a second it made."""

    def __init__(self, engine: VllmEngine, folder: Path) -> None:
        self._engine = engine
        self._words = load_tokenizer(folder)
        self._prompt = self._words.encode("?")
        self._requests = 0
        self.trajectories = list[Trajectory]()

    async def loop(self, delay: float = 0.0) -> float:
        """Our loop; the seeds are always the same, and so are the trajectories."""
        loop = ToolLoop(self._words, self._engine, Tool(delay), max_observation_tokens=32)
        sampling = Sampling(max_turns=3, max_turn_tokens=300)
        started = time.monotonic()
        (self.trajectories,) = await loop.rollout([Task("t", self._prompt)], ROWS, sampling, [0])
        return ROWS / (time.monotonic() - started)

    async def delayed(self) -> float:
        """Our loop when each call takes a while."""
        return await self.loop(DELAY_S)

    async def raw(self) -> float:
        """Plain generation of rows as long as the trajectories' generated tokens."""
        return await self._plain(seeded=True)

    async def unseeded(self) -> float:
        """Plain generation without a seed a row."""
        return await self._plain(seeded=False)

    async def _plain(self, *, seeded: bool) -> float:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        async def row(number: int, length: int) -> None:
            self._requests += 1
            params = SamplingParams(
                max_tokens=length,
                ignore_eos=True,
                logprobs=0,
                seed=number if seeded else None,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = TokensPrompt(prompt_token_ids=self._prompt)
            async for _ in self._engine._server.generate(prompt, params, f"raw-{self._requests}"):
                pass

        lengths = [sum(t.mask) for t in self.trajectories]
        started = time.monotonic()
        await asyncio.gather(*(row(*pair) for pair in enumerate(lengths)))
        return ROWS / (time.monotonic() - started)


async def main() -> None:
    """Measure, print each round and then one line of JSON."""
    os.environ |= {name: value for name, value in ENVIRONMENT.items() if name.startswith(KEPT)}
    shuffled, rounds = random.Random(0), list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripted.write_model(folder, script(), positions=1024)
        async with VllmEngine(folder, SETTINGS) as engine:
            bench = Bench(engine, folder)
            kinds = [bench.loop, bench.delayed, bench.raw, bench.unseeded]
            for number in range(WARM_UP + ROUNDS):
                speeds = {kind.__name__: await kind() for kind in kinds}
                shuffled.shuffle(kinds)
                if number >= WARM_UP:
                    rounds.append(speeds)
                    print(*(f"{kind} {speed:.1f}/s" for kind, speed in sorted(speeds.items())))

    def ratio(kind: str, to: str) -> dict[str, float]:
        found = [speeds[kind] / speeds[to] for speeds in rounds]
        low, middle, high = statistics.quantiles(found, n=4)
        return {"median": round(middle, 3), "from": round(low, 3), "to": round(high, 3)}

    print(
        json.dumps(
            {
                "loop_to_raw": ratio("loop", "raw"),
                "loop_to_unseeded_raw": ratio("loop", "unseeded"),
                "delayed_to_undelayed": ratio("delayed", "loop"),
                "tokens_a_trajectory": sum(sum(t.mask) for t in bench.trajectories) / ROWS,
                "calls_a_trajectory": sum(t.n_tool for t in bench.trajectories) / ROWS,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
