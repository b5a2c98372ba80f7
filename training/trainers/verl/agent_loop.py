"""verl's agent loop around our tool loop: one trajectory a call, sampled by verl's vLLM servers.

verl makes an object for each trajectory, in several worker processes; each process keeps one
sandbox for all of its trajectories.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from training.rollout.engine import Sampling
from training.rollout.request_engine import Completion, Request, RequestEngine
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Trajectory
from training.rollout.vllm_engine import sampling_values
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings
from training.seeds import derive_seed

TOKENS = ("prompt_ids", "output_ids", "mask", "logprobs")
"""Fields of a trajectory that verl carries as tensors."""


@dataclass(frozen=True)
class Order:
    """What one group is sampled by; travels to the workers as plain values."""

    task: str
    prompt_ids: list[int]
    seed: int
    sampling: dict[str, Any]
    eos_ids: list[int]
    context: int
    deadline_seconds: float
    max_code_chars: int
    max_observation_tokens: int
    sandbox: dict[str, Any] | None

    def to_plain(self) -> dict[str, Any]:
        """Plain values; `Order(**plain)` is the equal order."""
        return asdict(self)


class ToolAgentLoop(AgentLoopBase):
    """Runs one trajectory of an `Order`."""

    def __init__(self, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # The base class prepares chat templates and images, of which this loop has neither.
        self._server, self._tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Member `session_id` of the group that `order` asks for."""
        order = Order(**kwargs["order"])
        engine = RequestEngine(
            self._complete,
            eos_ids=frozenset(order.eos_ids),
            context=order.context,
            deadline_seconds=order.deadline_seconds,
        )
        loop = ToolLoop(
            self._tokenizer,
            engine,
            await _sandbox(order.sandbox),
            max_code_chars=order.max_code_chars,
            max_observation_tokens=order.max_observation_tokens,
        )
        name = f"{kwargs['uid']}-{kwargs['session_id']}"
        seed = derive_seed(order.seed, kwargs["session_id"])
        self._name = name
        groups = await loop.rollout(
            [Task(order.task, order.prompt_ids)], 1, Sampling(**order.sampling), [seed]
        )
        return _output(groups[0][0], engine.metrics())

    async def _complete(self, request: Request) -> Completion:
        answer = await self._server.generate(
            self._name,
            prompt_ids=list(request.ids),
            sampling_params={**sampling_values(request), "logprobs": True},
        )
        ids, logprobs = list(answer.token_ids), list(answer.log_probs or [])
        if ids and ids[-1] in request.eos_ids:
            return Completion(ids, logprobs, "eos")
        # verl does not say why else an answer ended; where a stop string is looked for, the tool
        # loop finds out by itself and goes on if it was only the length.
        return Completion(ids, logprobs, "stop" if request.stop else "length")


def _output(trajectory: Trajectory, metrics: Mapping[str, float]) -> AgentLoopOutput:
    record = trajectory.to_json()
    rest = {name: value for name, value in record.items() if name not in TOKENS}
    return AgentLoopOutput(
        prompt_ids=trajectory.prompt_ids,
        response_ids=trajectory.output_ids,
        response_mask=trajectory.mask,
        response_logprobs=trajectory.logprobs,
        reward_score=0.0,  # rewards are made of whole groups, by the trainer
        num_turns=trajectory.turns,
        metrics=AgentLoopMetrics(
            generate_sequences=metrics["seconds"] - metrics["tool_seconds"],
            tool_calls=metrics["tool_seconds"],
        ),
        extra_fields={"record": rest},
    )


_shared: dict[str, asyncio.Task[Sandbox]] = {}


async def _sandbox(settings: Mapping[str, Any] | None) -> Sandbox | None:
    """This process's sandbox for these settings, opened by whoever asks first.

    It ends with the process: its supervisors die with their parent.
    """
    if settings is None:
        return None
    key = repr(sorted(settings.items()))
    if key not in _shared:
        _shared[key] = asyncio.ensure_future(Sandbox(SandboxSettings(**settings)).__aenter__())
    try:
        return await _shared[key]
    except BaseException:
        _shared.pop(key, None)
        raise
