"""How the tasks of a curriculum relate to the grammar and to the evaluation problems."""

from collections.abc import Collection, Sequence

from training.tiny_world.grammar import kind


def in_grammar_share(problems: Sequence[str]) -> float:
    """Share of problem texts that belong to a kind of the grammar; 0 for no problems."""
    known = sum(kind(problem) is not None for problem in problems)
    return known / len(problems) if problems else 0.0


def overlap(problems: Sequence[str], held_out: Collection[str]) -> int:
    """How many of the problems, repetitions counted, are word for word in ``held_out``."""
    known = set(held_out)
    return sum(problem in known for problem in problems)
