"""The turn loop of docs/method.md section 2: generate, run one code block, observe, go on.

It is written once.  Engines sample tokens and ask it what a completed code block leads to; the
trajectories it returns carry the token ids exactly as sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from transformers import PreTrainedTokenizerFast

from training.algorithms.answers import read_output, states_final_answer
from training.rollout.engine import Engine, Prompt, Sampled, Sampling
from training.rollout.observation import ObservationEncoder
from training.rollout.stop_string import generated_text
from training.rollout.trajectory import Status, Stop, ToolCall, Trajectory
from training.sandbox.verdict import CallResult, Verdict, observation
from training.seeds import derive_seed

CODE_OPEN, CODE_CLOSE = "<python>", "</python>"
REFUSED = "The code was not run: it is longer than {limit} characters."
_ATTEMPTS = 3  # one sampling and two resamplings after failures of our own machinery


class CodeRunner(Protocol):
    """What the loop needs of a sandbox."""

    async def run(self, code: str) -> CallResult: ...


@dataclass(frozen=True)
class Task:
    """A prompt to sample a group for; `id` is stable and unique within a stage."""

    id: str
    prompt_ids: Sequence[int]


@dataclass(slots=True)
class _Row:
    """A trajectory in the making."""

    task: Task
    seed: int
    prompt: Prompt
    calls: list[ToolCall] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of the turns that are over
    turn_start: int = 0  # index of the turn's first token in the output
    stop: Stop | None = None


class ToolLoop:
    """Samples groups of trajectories with an engine and a sandbox, or without a tool (None).

    Code longer than `max_code_chars` is refused; observations are cut to
    `max_observation_tokens`.  Raises `ValueError` for limits too small to work with.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        engine: Engine,
        sandbox: CodeRunner | None,
        *,
        max_code_chars: int = 1024,
        max_observation_tokens: int = 1024,
    ) -> None:
        self._tokenizer, self._engine, self._sandbox = tokenizer, engine, sandbox
        self._max_code_chars = max_code_chars
        self._encoder = ObservationEncoder(tokenizer, max_observation_tokens)

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]:
        """A group of `group_size` trajectories for each task, in the order of the tasks.

        `seeds` has one seed a task; member g of the group draws from the seed derived from it
        and g.  A trajectory that meets a failure of our own machinery is sampled again, twice at
        most, with fresh seeds; one that fails a third time has status infra, and the caller
        leaves its task out.

        Raises `ValueError` for a seed count that differs from the task count and whatever the
        engine refuses.
        """
        if len(seeds) != len(tasks):
            raise ValueError(f"{len(tasks)} tasks need {len(tasks)} seeds, got {len(seeds)}")
        if group_size < 1:
            raise ValueError(f"group_size is {group_size}; use at least 1")
        done: dict[int, Trajectory] = {}
        left = list(range(len(tasks) * group_size))
        for attempt in range(_ATTEMPTS):
            rows = []
            for index in left:
                task, member = divmod(index, group_size)
                parts = (member, attempt) if attempt else (member,)
                rows.append(_row(tasks[task], derive_seed(seeds[task], *parts)))
            for index, trajectory in zip(left, await self._sample(rows, sampling), strict=True):
                done[index] = trajectory
            left = [index for index in left if done[index].status is Status.INFRA]
            if not left:
                break
        return [
            [done[task * group_size + member] for member in range(group_size)]
            for task in range(len(tasks))
        ]

    async def _sample(self, rows: list[_Row], sampling: Sampling) -> list[Trajectory]:
        room = min(sampling.max_context_tokens or self._engine.context, self._engine.context)
        stop = None if self._sandbox is None else CODE_CLOSE

        async def turn(index: int, sampled: Sampled) -> Sequence[int] | None:
            return await self._turn(rows[index], sampled, sampling.max_turns, room)

        results = await self._engine.sample(
            [row.prompt for row in rows], replace(sampling, stop=stop), turn
        )
        return [self._close(row, result, room) for row, result in zip(rows, results, strict=True)]

    async def _turn(
        self, row: _Row, sampled: Sampled, max_turns: int, room: int
    ) -> Sequence[int] | None:
        """What follows a completed `</python>`, as a `TurnHandler` answers."""
        text = generated_text(self._tokenizer, sampled.ids[row.turn_start :])
        code = last_code_block(text)
        if code is None:
            return []
        if states_final_answer(text):
            row.stop = Stop.FINAL
            return None
        number = len(row.texts) + 1
        if number >= max_turns:
            row.stop = Stop.TURNS
            return None
        seen = await self._call(row, number, code)
        if seen is None:
            return None
        ids = self._encoder.encode(seen)
        if len(row.prompt.ids) + len(sampled.ids) + len(ids) >= room:
            row.stop = Stop.CONTEXT
            return None
        row.texts.append(text)
        row.turn_start = len(sampled.ids) + len(ids)
        return ids

    async def _call(self, row: _Row, turn: int, code: str) -> str | None:
        """Run one code block; what the model sees of it, or None after an infra failure."""
        if len(code) > self._max_code_chars:
            row.calls.append(ToolCall(turn, "refused", 0.0, counted=False))
            return REFUSED.format(limit=self._max_code_chars)
        assert self._sandbox is not None
        result = await self._sandbox.run(code)
        infra = result.verdict is Verdict.INFRA
        row.calls.append(ToolCall(turn, result.verdict.value, result.seconds, counted=not infra))
        if infra:
            row.stop = Stop.INFRA
            return None
        return observation(result)

    def _close(self, row: _Row, sampled: Sampled, room: int) -> Trajectory:
        stop = row.stop or self._own_stop(row, sampled, room)
        last = sampled.ids[row.turn_start :]
        if stop is Stop.EOS:
            last = last[:-1]
        text = "\n".join([*row.texts, generated_text(self._tokenizer, last)])
        status, label, reason = judge(text, stop)
        return Trajectory(
            task=row.task.id,
            prompt_ids=list(row.prompt.ids),
            output_ids=sampled.ids,
            mask=sampled.mask,
            logprobs=sampled.logprobs,
            turns=len(row.texts) + 1,
            calls=row.calls,
            status=status,
            label=label,
            reason=reason,
            stop=stop,
            seed=row.seed,
            text=text,
        )

    def _own_stop(self, row: _Row, sampled: Sampled, room: int) -> Stop:
        if sampled.finish == "eos":
            return Stop.EOS
        return Stop.CONTEXT if len(row.prompt.ids) + len(sampled.ids) >= room else Stop.LENGTH


def last_code_block(text: str) -> str | None:
    """The code of the last complete `<python>…</python>` pair of a turn, or None."""
    close = text.rfind(CODE_CLOSE)
    start = text.rfind(CODE_OPEN, 0, max(close, 0))
    if start < 0:
        return None
    return text[start + len(CODE_OPEN) : close].partition(CODE_CLOSE)[0]


def judge(text: str, stop: Stop) -> tuple[Status, str | None, str]:
    """Status, label and reason of a trajectory's generated text (docs/method.md section 2).

    A text that was cut is read up to its last whole line: without a final answer there it is
    missing, whatever the cut line may have been about to say.
    """
    if stop is Stop.INFRA:
        return Status.INFRA, None, "the sandbox failed"
    if stop in (Stop.LENGTH, Stop.TURNS, Stop.CONTEXT):
        text = text[: text.rfind("\n") + 1]
        if not states_final_answer(text):
            return Status.MISSING, None, f"cut before a final answer ({stop.value})"
    elif not text.strip():
        return Status.MISSING, None, "empty output"
    answer = read_output(text)
    return Status(answer.status), answer.label, answer.reason


def _row(task: Task, seed: int) -> _Row:
    return _Row(task=task, seed=seed, prompt=Prompt(tuple(task.prompt_ids), seed))
