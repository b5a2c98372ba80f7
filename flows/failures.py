"""Failures that a person can act on end a flow run in one sentence, without a traceback."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect.states import Failed, State

from tasks.runs import RunError
from tasks.stage import StageFailed
from training.errors import StageError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_one_sentence(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a flow's own failures be its state, worded as they are; whoever calls the flow directly
    still gets them raised. Anything else is a bug and keeps its traceback."""

    @functools.wraps(function)
    def told(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (RunError, StageFailed, StageError) as error:
            failed: State[Result] = Failed(message=str(error), data=error)
            return failed  # type: ignore[return-value]  # Prefect takes it for the final state

    return told
