"""The alarms of a stage: what its metrics raise, kept in a file that survives attempts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from training.algorithms.alarms import Limits, alarms
from training.config import Alarms, Curriculum, Rollout
from training.errors import NumericError

ALARMS = "alarms.jsonl"
"""In a stage's work folder: one object an alarm, as `algorithms.alarms.Alarm` names its parts."""


def alarm_limits(settings: Alarms, rollout: Rollout, curriculum: Curriculum | None) -> Limits:
    """Limits of a stage; `curriculum` is given where its reward is at work.

    The terms that must vary are those with a weight; repetition is left out, since it is at its
    least, and constant, while nothing repeats.
    """
    terms: dict[str, float] = {}
    if curriculum is not None:
        terms = {
            "uncertainty": curriculum.w_unc,
            "tool_reward": curriculum.w_tool if rollout.tool else 0.0,
            "reference_reward": curriculum.lambda_ref,
        }
    return Limits(
        patience=settings.patience,
        stop_after=settings.stop_after,
        min_entropy=settings.min_entropy,
        max_share=settings.max_share,
        terms=tuple(name for name, weight in terms.items() if weight > 0),
        tool=rollout.tool,
    )


def note_alarms(
    folder: Path, history: Sequence[Mapping[str, float | int | None]], limits: Limits
) -> None:
    """Append what the newest step raises to the file in `folder`; see `alarms`.

    Raises NumericError for a hard alarm, after it was written.
    """
    found = alarms(history, limits)
    if not found:
        return
    with (folder / ALARMS).open("a", encoding="utf-8") as handle:
        handle.writelines(json.dumps(asdict(alarm)) + "\n" for alarm in found)
    hard = [alarm for alarm in found if alarm.level == "hard"]
    if hard:
        raise NumericError(
            f"training has collapsed at step {hard[0].step}: {hard[0].sentence}; nothing was "
            f"published (alarm {hard[0].name}). If it may go on, fork the run with a larger "
            "alarms.stop_after, or 0: the fork resumes from the last checkpoint"
        )
