"""Questions of an evaluation: the built-in tiny set, or a benchmark's file (section 7)."""

from collections.abc import Sequence

from training.benchmarks.catalog import BENCHMARKS
from training.benchmarks.loading import Missing, Sources, load
from training.benchmarks.schema import Question
from training.errors import ConfigError
from training.stages.base import StageContext
from training.tiny_world.sets import problem_set

TINY = "tiny"


def benchmark_names() -> list[str]:
    """Every name that ``evaluation.benchmarks`` may hold."""
    return [TINY, *BENCHMARKS]


def load_questions(name: str, ctx: StageContext, limit: int | None) -> Sequence[Question]:
    """The first ``limit`` questions of a benchmark, in file order.

    Raises ConfigError when the benchmark cannot be loaded.
    """
    if name == TINY:
        questions = tuple(
            Question(p["id"], p["problem"], p["answer"], subject=p["kind"])
            for p in problem_set("held_out")
        )
    else:
        key = f"benchmark.{name}"
        files = {name: ctx.file(key)} if key in ctx.spec.paths else {}
        loaded = load(name, Sources(files))
        if isinstance(loaded, Missing):
            raise ConfigError(f"{loaded.reason} Name a file with evaluation.files.{name}=PATH")
        questions = loaded.questions
    return questions[:limit]
