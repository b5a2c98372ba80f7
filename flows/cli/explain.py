"""`anchorloop explain`: the maths of a vote, an advantage or a reward, from JSON to JSON.

These commands are for checking a suspicious reward by hand. They load neither torch nor a server.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import typer

from flows.cli import json_input
from flows.cli.errors import UserError
from flows.cli.json_input import JsonObject, as_answer, as_count, as_list, as_text, check_keys

if TYPE_CHECKING:
    from training.algorithms.curriculum_reward import Rollouts

app = typer.Typer(
    help="Show how an answer is read and how rewards and advantages come about.",
    no_args_is_help=True,
)


@app.command("answer")
def answer_command() -> None:
    """Read answers: JSON lines {"id", "text"} (a model output) or {"id", "answer"} (bare)."""
    for line in [_answer(item, where) for where, item in json_input.read_objects()]:
        typer.echo(json.dumps(line))


@app.command("executor")
def executor_command() -> None:
    """Advantage of one group: a JSON object {"current", "anchor", "alpha"?, "std"?}."""
    typer.echo(json.dumps(_executor(json_input.read_object())))


@app.command("curriculum")
def curriculum_command() -> None:
    """Rewards of a batch: {"tasks": [{"text", "current", "anchor"?, "tool_calls"}, ...]}."""
    typer.echo(json.dumps(_curriculum(json_input.read_object())))


def _answer(item: JsonObject, where: str) -> JsonObject:
    from training.algorithms.answers import read_bare, read_output

    if ("text" in item) == ("answer" in item):
        raise UserError(f"{where}: give either 'text' or 'answer' beside 'id'")
    given = "text" if "text" in item else "answer"
    check_keys(item, where, ["id", given])
    identifier = item["id"]
    if isinstance(identifier, (dict, list, Decimal)):
        raise UserError(f"{where}: 'id' must be a string or an integer")
    if given == "text":
        answer = read_output(as_text(item["text"], f"{where}, 'text'"))
    else:
        answer = read_bare(as_answer(item["answer"], f"{where}, 'answer'"))
    return {
        "id": identifier,
        "status": answer.status,
        "label": answer.label,
        "reason": answer.reason,
    }


def _executor(given: JsonObject) -> JsonObject:
    from training.algorithms.adpo import clip_bounds, weight
    from training.algorithms.cross_reference import (
        ALPHA,
        cross_reference_advantage,
        structure,
    )
    from training.algorithms.voting import vote

    check_keys(given, "standard input", ["current", "anchor"], ["alpha", "std"])
    labels = _group(given["current"], "'current'")
    anchor_labels = _group(given["anchor"], "'anchor'", size=len(labels))
    alpha = _alpha(given.get("alpha", ALPHA))
    std = given.get("std", "sample")
    if std != "sample" and std != "population":
        raise UserError(f"'std' must be 'sample' or 'population', got {json_input.shown(std)}")
    current, anchor = vote(labels), vote(anchor_labels)
    shown: JsonObject = {
        "resolved": current.resolved and anchor.resolved,
        "current_label": current.label,
        "anchor_label": anchor.label,
    }
    if current.label is None or anchor.label is None:
        left_out = ("r_cur", "r_anc", "a_cur", "a_hist", "advantage", "agreement", "weight")
        return shown | dict.fromkeys((*left_out, "scaled", "clip", "structure"))
    result = cross_reference_advantage(labels, current, anchor, alpha, std)
    factor = weight(current.agreement)
    return shown | {
        "r_cur": result.r_cur,
        "r_anc": result.r_anc,
        "a_cur": result.a_cur,
        "a_hist": result.a_hist,
        "advantage": result.advantage,
        "agreement": current.agreement,
        "weight": factor,
        "scaled": [factor * a for a in result.advantage],
        "clip": list(clip_bounds(current.agreement)),
        "structure": structure(labels, current.label, anchor.label),
    }


def _curriculum(given: JsonObject) -> JsonObject:
    from dataclasses import asdict

    from training.algorithms.candidate import read_candidate
    from training.algorithms.curriculum_reward import score_batch

    check_keys(given, "standard input", ["tasks"])
    tasks = as_list(given["tasks"], "'tasks'")
    if not tasks:
        raise UserError("'tasks' is empty; give at least one candidate")
    candidates, rollouts = [], []
    for index, task in enumerate(tasks):
        where = f"tasks[{index}]"
        if not isinstance(task, dict):
            raise UserError(f"{where}: expected an object, got {json_input.kind(task)}")
        check_keys(task, where, ["text"], ["current", "anchor", "tool_calls"])
        candidates.append(read_candidate(as_text(task["text"], f"{where}.text")))
        rollouts.append(_rollouts(task, where, needed=bool(candidates[-1].r_fmt)))
    return {"tasks": [asdict(score) for score in score_batch(candidates, rollouts)]}


def _rollouts(task: JsonObject, where: str, needed: bool) -> Rollouts | None:
    from training.algorithms.curriculum_reward import Rollouts
    from training.algorithms.voting import vote

    if not needed and all(
        task.get(key) in (None, []) for key in ("current", "anchor", "tool_calls")
    ):
        return None
    absent = [key for key in ("current", "tool_calls") if task.get(key) is None]
    if absent:
        raise UserError(
            f"{where}: {absent[0]!r} is missing; only a format-invalid task goes without groups"
        )
    labels = _group(task["current"], f"{where}.current")
    size = len(labels)
    anchor = task.get("anchor")
    votes = None if anchor is None else vote(_group(anchor, f"{where}.anchor", size=size))
    calls = as_list(task["tool_calls"], f"{where}.tool_calls")
    if len(calls) != size:
        raise UserError(
            f"{where}.tool_calls: {len(calls)} counts for a group of {size}; give one a trajectory"
        )
    counts = [as_count(n, f"{where}.tool_calls[{i}]") for i, n in enumerate(calls)]
    return Rollouts(vote(labels), votes, counts)


def _group(value: object, where: str, size: int | None = None) -> list[str | None]:
    """Return the canonical labels of a group of answers; null and unreadable ones don't vote.

    A single capital letter stands for itself, so that a pattern such as AAAABBBC can be tried.
    """
    entries = as_list(value, where)
    if len(entries) < 2:
        raise UserError(f"{where}: a group needs at least 2 answers, got {len(entries)}")
    if size is not None and len(entries) != size:
        raise UserError(
            f"{where}: {len(entries)} answers for a current group of {size}; the sizes must agree"
        )
    answers = [as_answer(entry, f"{where}[{i}]") for i, entry in enumerate(entries)]
    return [None if answer is None else _label(answer) for answer in answers]


def _label(answer: str) -> str | None:
    from training.algorithms.answers import read_bare

    return answer if len(answer) == 1 and "A" <= answer <= "Z" else read_bare(answer).label


def _alpha(value: object) -> float:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise UserError(f"'alpha' must be a number in [0, 1], got {json_input.shown(value)}")
