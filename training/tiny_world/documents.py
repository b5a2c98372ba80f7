"""Demonstrations of the warm start: curriculum and solver documents with flaws on a ladder.

A base model that solved everything would leave nothing to learn, and one that solved nothing would
agree on nonsense.  So the share of bare guesses rises from kind to kind: on the upper rungs a guess
is the single most likely path while the calls, which agree with each other, still win the vote.
"""

import random
from dataclasses import dataclass

from training.rollout.observation import OBSERVATION
from training.tiny_world.expressions import code_for, evaluate
from training.tiny_world.grammar import KIND_NAMES, kind, right_expression, truth, wrong_expressions

EOS = "<eos>"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a document that is tokenised on its own; ``learned`` if the model writes it."""

    text: str
    learned: bool


Document = list[Span]


@dataclass(frozen=True, slots=True)
class Flaws:
    """How often a demonstration goes wrong, as shares.

    ``guess_low`` and ``guess_high`` are the guess shares of the easiest and the hardest kind; the
    kinds between are evenly spaced.  The next three divide what is not guessed, and the rest of it
    is one right call.  The last two are shares of curriculum documents.
    """

    guess_low: float = 0.20
    guess_high: float = 0.74
    wrong_call: float = 0.20
    no_answer: float = 0.08
    second_call: float = 0.12
    no_problem_answer: float = 0.06
    unreadable_problem_answer: float = 0.06

    def guess_share(self, kind_name: str) -> float:
        """Share of bare guesses among the demonstrations of a kind."""
        rung = KIND_NAMES.index(kind_name) / (len(KIND_NAMES) - 1)
        return self.guess_low + rung * (self.guess_high - self.guess_low)


def solver_document(rng: random.Random, problem: str, prompt: str, flaws: Flaws) -> Document:
    """One demonstration that answers a problem, flawed with the shares of ``flaws``.

    Raises:
        ValueError: the problem is outside the grammar or has no answer.
    """
    name, right, answer = kind(problem), right_expression(problem), truth(problem)
    if name is None or right is None or answer is None:
        raise ValueError(f"no demonstration exists for the problem {problem!r}")
    start = [Span(prompt, False)]
    if rng.random() < flaws.guess_share(name):
        return [*start, Span(f"Easy.\n{_final(_guess(rng, int(answer)))}", True)]
    path = rng.random()
    if path < flaws.no_answer:
        return [*start, *_call(right), Span(f"I stop here.\n{EOS}", True)]
    wrong = rng.choice(wrong_expressions(problem))
    if path < flaws.no_answer + flaws.wrong_call:
        return [*start, *_call(wrong), Span(_final(_printed(wrong)), True)]
    if path < flaws.no_answer + flaws.wrong_call + flaws.second_call:
        again = _call(right, before="Once more.\n")
        return [*start, *_call(wrong), *again, Span(_final(answer), True)]
    return [*start, *_call(right), Span(_final(answer), True)]


def curriculum_document(rng: random.Random, problem: str, prompt: str, flaws: Flaws) -> Document:
    """One demonstration that poses a problem; its stated answer is right half of the time."""
    answer = truth(problem)
    draw = rng.random()
    if draw < flaws.no_problem_answer:
        text = f"Problem: {problem}\n{EOS}"
    elif draw < flaws.no_problem_answer + flaws.unreadable_problem_answer:
        text = f"Problem: {problem}\nAnswer: unknown\n{EOS}"
    else:
        stated = answer if rng.random() < 0.5 else str(rng.randint(1, 200))
        text = f"Problem: {problem}\nAnswer: {stated}\n{EOS}"
    return [Span(prompt, False), Span(text, True)]


def _call(expression: str, before: str = "") -> Document:
    code = f"{before}<python>{code_for(expression)}</python>"
    return [Span(code, True), Span(OBSERVATION.format(stdout=_printed(expression)), False)]


def _printed(expression: str) -> str:
    value = evaluate(expression)
    if value is None:
        raise ValueError(f"the expression {expression!r} prints no value")
    return value


def _final(answer: str | int) -> str:
    return f"Final Answer: {answer}\n{EOS}"


def _guess(rng: random.Random, answer: int) -> int:
    """A number near the answer, never the answer."""
    return answer + rng.choice((-1, 1)) * rng.randint(1, max(6, abs(answer) // 3))
