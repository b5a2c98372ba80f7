"""verl's own thread: it blocks, and a stage's event loop must not."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from training.errors import InfraError

P = ParamSpec("P")
T = TypeVar("T")


class VerlThread:
    """Does one piece of blocking work after another, each within `deadline_seconds`."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline = deadline_seconds
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verl")

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it and wait for it. Raises `InfraError` when it takes longer than the deadline."""
        loop = asyncio.get_running_loop()
        doing = loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))
        try:
            async with asyncio.timeout(self._deadline):
                return await doing
        except TimeoutError:
            raise InfraError(
                f"verl did not finish within {self._deadline:g} s (trainer.deadline_seconds); "
                "look at the log, then retry"
            ) from None

    def close(self) -> None:
        """Take no more work; what is being waited for is not."""
        self._pool.shutdown(wait=False, cancel_futures=True)
