"""The vLLM engine: frozen weights from a model folder, sampled by vLLM in this process.

Needs the environment of the GPU backend; vLLM is imported only when an engine is opened.
"""

import gc
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from transformers import GenerationConfig

from training.errors import InfraError
from training.models import load_tokenizer
from training.rollout.engine import Finish
from training.rollout.request_engine import Completion, Request, RequestEngine


@dataclass(frozen=True)
class VllmSettings:
    """How vLLM is started.

    `memory_share` is the share of a GPU's memory that weights and cache may take, and
    `tensor_parallel` the GPUs that hold one copy of the weights.  `plain` does without compiled
    graphs and without prompts split over steps: on the CPU vLLM cannot go on with the random
    stream of a request whose prompt was split.  `sleeps` lets the engine give its GPU memory back
    for a while.
    """

    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    max_context_tokens: int = 16384
    max_rows: int = 256
    tensor_parallel: int = 1
    memory_share: float = 0.9
    plain: bool = False
    sleeps: bool = False
    deadline_seconds: float = 3600.0
    remote_code: bool = False


class VllmEngine(RequestEngine):
    """An `Engine` over the weights in `folder`; open it with `async with`.

    Prefix caching makes the members of a group share their prompt and a later turn share the
    earlier ones.  Log-probabilities are those before temperature and nucleus.
    """

    def __init__(self, folder: Path, settings: VllmSettings) -> None:
        super().__init__(
            self._generate,
            eos_ids=end_tokens(folder, remote_code=settings.remote_code),
            context=settings.max_context_tokens,
            deadline_seconds=settings.deadline_seconds,
        )
        self._folder, self._settings = folder, settings
        self._server: Any = None
        self._requests = 0
        self._asleep = False

    async def __aenter__(self) -> Self:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._server = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(self._folder),
                dtype=self._settings.dtype,
                max_model_len=self._settings.max_context_tokens,
                max_num_seqs=self._settings.max_rows,
                tensor_parallel_size=self._settings.tensor_parallel,
                gpu_memory_utilization=self._settings.memory_share,
                max_num_batched_tokens=max(8192, self._settings.max_context_tokens),
                enforce_eager=self._settings.plain,
                enable_chunked_prefill=not self._settings.plain,
                enable_prefix_caching=True,
                trust_remote_code=self._settings.remote_code,
                # vLLM refuses it on the CPU, where sleeping stops the scheduler and frees nothing
                enable_sleep_mode=self._settings.sleeps and not self._settings.plain,
                enable_log_requests=False,
                disable_log_stats=True,
            )
        )
        # Else the collector walks torch and transformers over and over while tokens arrive: stops
        # of half a second that let this process fall behind vLLM's (docs/gpu.md, "Numbers").
        gc.collect()
        gc.freeze()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.unfreeze()
        self._server.shutdown()
        self._server = None

    async def sleep(self) -> None:
        """Give the GPU memory back: the cache is dropped and the weights wait in main memory.

        No request may be in flight.
        """
        if not self._asleep:
            await self._server.sleep(level=1)
            self._asleep = True

    async def wake(self) -> None:
        """Take the GPU memory again, if asleep."""
        if self._asleep:
            await self._server.wake_up()
            self._asleep = False

    async def _generate(self, request: Request) -> Completion:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        self._requests += 1
        answers = self._server.generate(
            TokensPrompt(prompt_token_ids=list(request.ids)),
            SamplingParams(
                **sampling_values(request), logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY
            ),
            f"{request.session}.{self._requests}",
        )
        try:
            async for answer in answers:
                output = answer.outputs[0]
        except EngineDeadError as error:
            raise InfraError("the vLLM engine died; look at the log, then retry") from error
        steps = zip(output.token_ids, output.logprobs, strict=True)
        finish: Finish = "eos"
        if output.finish_reason == "length":
            finish = "length"
        elif request.stop is not None and output.stop_reason == request.stop:
            finish = "stop"
        return Completion(
            list(output.token_ids), [step[token].logprob for token, step in steps], finish
        )


def sampling_values(request: Request) -> dict[str, Any]:
    """The request in the words of vLLM's `SamplingParams`; log-probabilities are left out.

    Special tokens are shown while the stop string is looked for, since the tags of a protocol
    may be some.
    """
    return {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p if request.temperature else 1.0,
        "top_k": -1,
        "seed": request.seed,
        "stop": [] if request.stop is None else [request.stop],
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(request.eos_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
    }


def end_tokens(folder: Path, *, remote_code: bool = False) -> frozenset[int]:
    """The end-of-text tokens of a model folder: the tokenizer's and the generation config's.

    Raises `ModelError` for a folder without a usable tokenizer.
    """
    ends = {load_tokenizer(folder, remote_code=remote_code).eos_token_id}
    if (folder / "generation_config.json").is_file():
        named = GenerationConfig.from_pretrained(folder).eos_token_id
        ends |= {named} if isinstance(named, int) else set(named or [])
    return frozenset(ends)
