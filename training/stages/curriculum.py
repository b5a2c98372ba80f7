"""The curriculum stage: GRPO on the Curriculum alone (docs/method.md section 3)."""

from training.stages.base import StageContext, StageResult
from training.trainers.curriculum import run_curriculum


def run(ctx: StageContext) -> StageResult:
    """Train in this process; see ``training.trainers.curriculum``."""
    return run_curriculum(ctx)
