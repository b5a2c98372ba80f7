"""What a trainer is: the two training stages of one backend, chosen by the setting `trainer`."""

from typing import Protocol

from training.stages.base import StageContext


class Trainer(Protocol):
    """A backend that runs both training stages with the same algorithms."""

    def curriculum(self, ctx: StageContext) -> dict[str, float]:
        """Train the Curriculum (docs/method.md section 3) and return the headline metrics."""

    def executor(self, ctx: StageContext) -> dict[str, float]:
        """Train the Executor (docs/method.md sections 4 and 5) and return the headline metrics."""
