"""The executor stage: ADPO on the Executor alone (docs/method.md sections 4 and 5)."""

from training.stages.base import StageContext, StageResult
from training.trainers.executor import run_executor


def run(ctx: StageContext) -> StageResult:
    """Train in this process; see ``training.trainers.executor``."""
    return run_executor(ctx)
