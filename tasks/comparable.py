"""Whether a run's numbers can be compared with published ones: its base model decides."""

import json

from tasks.runs import Run
from training.benchmarks.base_gate import check_report


def comparable(run: Run) -> str | None:
    """``yes``, or why not; None where no benchmark with published scores was evaluated.

    Reads the scores of iteration 0; the result goes into the run's tags and summary.
    """
    config = run.config
    identity = run.entry(0, "evaluation").identity
    path = run.store.place(identity).artifact / "scores.json"
    if not path.is_file():  # the tiny world has no published scores
        return None
    settings = config.evaluation
    gate = check_report(
        json.loads(path.read_text(encoding="utf-8")),
        config.model.name,
        config.rollout.tool,
        settings.reference_scores,
        settings.reference_tolerance,
    )
    if gate is None:
        return None
    return "yes" if gate.comparable else "; ".join(gate.reasons)
