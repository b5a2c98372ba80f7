"""How the tasks of a curriculum relate to the grammar and to the evaluation problems."""

from collections import Counter
from collections.abc import Collection, Sequence

from training.tiny_world.grammar import KIND_NAMES, kind


def in_grammar_share(problems: Sequence[str]) -> float:
    """Share of problem texts that belong to a kind of the grammar; 0 for no problems."""
    return _share(sum(kind(problem) is not None for problem in problems), problems)


def distinct_share(problems: Sequence[str]) -> float:
    """Number of different texts over the number of texts; 0 for no problems."""
    return _share(len(set(problems)), problems)


def overlap(problems: Sequence[str], held_out: Collection[str]) -> int:
    """How many of the problems, repetitions counted, are word for word in ``held_out``."""
    known = set(held_out)
    return sum(problem in known for problem in problems)


def kind_shares(problems: Sequence[str]) -> dict[str, float]:
    """Share of each kind of the grammar among the problems, kinds that never occur included."""
    counts = Counter(kind(problem) for problem in problems)
    return {name: _share(counts[name], problems) for name in KIND_NAMES}


def _share(count: int, problems: Sequence[str]) -> float:
    return count / len(problems) if problems else 0.0
