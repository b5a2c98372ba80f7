"""GPUs that several use in turns: one is awake, and all others sleep."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class Sleeper(Protocol):
    """Something that gives its GPU memory back while it sleeps."""

    async def sleep(self) -> None:
        """Give the memory back."""
        ...

    async def wake(self) -> None:
        """Take the memory again, or for the first time."""
        ...


class Turns:
    """Whose turn it is on some GPUs.

    Turns never overlap. Who had the last one stays awake until another one is taken, so that turns
    in a row cost nothing. Everybody sleeps at first.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._awake: Sleeper | None = None

    @asynccontextmanager
    async def of(self, sleeper: Sleeper | None) -> AsyncIterator[None]:
        """A turn of `sleeper`, or of nobody (None), in which training has the GPUs to itself.

        After a failure to fall asleep or to wake up nobody counts as awake.
        """
        async with self._lock:
            if self._awake is not sleeper:
                before, self._awake = self._awake, None
                if before is not None:
                    await before.sleep()
                if sleeper is not None:
                    await sleeper.wake()
                self._awake = sleeper
            yield
