"""The thirteen benchmarks of docs/method.md section 7, one declarative entry each.

Row counts and checksums are those of the files named in docs/evaluation.md. A hub revision
`refs/convert/parquet` is the hub's own parquet copy of a data set; the commit it resolved to is
recorded with every loaded benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training.benchmarks.schema import AnswerKind

Family = Literal["math", "general"]
Metric = Literal["pass@1", "mean@32"]
PARQUET = "refs/convert/parquet"


@dataclass(frozen=True)
class Hub:
    """Where a data set lives on the hub: the files of `config`/`split` at `revision`."""

    repo: str
    config: str = "default"
    split: str = "test"
    revision: str = PARQUET
    gated: bool = False


@dataclass(frozen=True)
class Benchmark:
    """What one benchmark is.

    `format` names the row reader in `training.benchmarks.formats`. `checksum` is that of the
    neutral file (`training.benchmarks.loading.content_checksum`). `expected_tokens` is a coarse
    guess at a response's length, used only to start long answers first. `no_republish` forbids its
    texts to leave the artifact store.
    """

    name: str
    title: str
    family: Family
    kind: AnswerKind
    metric: Metric
    format: str
    rows: int
    licence: str
    hubs: tuple[Hub, ...]
    checksum: str | None = None
    expected_tokens: int = 1000
    no_republish: bool = False
    in_average: bool = True

    @property
    def samples(self) -> int:
        """Responses a question: 32 for mean@32, 1 for pass@1."""
        return 32 if self.metric == "mean@32" else 1


_MAA = "problems by the Mathematical Association of America; collections state MIT"
_AGIEVAL = (
    "MIT; AQuA-RAT Apache-2.0; LogiQA CC BY-NC-SA 4.0, so the whole is for non-commercial use"
)
_AGIEVAL_SETS = (
    "aqua-rat",
    "gaokao-english",
    "logiqa-en",
    "lsat-ar",
    "lsat-lr",
    "lsat-rc",
    "math",
    "sat-en",
    "sat-en-without-passage",
    "sat-math",
)

BENCHMARKS: dict[str, Benchmark] = {
    entry.name: entry
    for entry in (
        Benchmark(
            name="amc23",
            title="AMC23",
            family="math",
            kind=AnswerKind.MATH,
            metric="mean@32",
            format="plain_math",
            rows=40,
            licence=_MAA,
            checksum="585b87ae62fcfb25e8325da68e9b2c6b70988c306d3652fbbcdc43c197bce1e1",
            hubs=(Hub("math-ai/amc23"),),
            expected_tokens=2000,
        ),
        Benchmark(
            name="math500",
            title="MATH-500",
            family="math",
            kind=AnswerKind.MATH,
            metric="pass@1",
            format="plain_math",
            rows=500,
            licence="MIT",
            checksum="2ef300b4221393911ab3068217ba389023ce216f1174effefa93c1e1d5838cfb",
            hubs=(Hub("HuggingFaceH4/MATH-500"),),
            expected_tokens=1500,
        ),
        Benchmark(
            name="gsm8k",
            title="GSM8K",
            family="math",
            kind=AnswerKind.MATH,
            metric="pass@1",
            format="gsm8k",
            rows=1319,
            licence="MIT",
            checksum="03747406040b02720c2c776e5657852829c4393a0f276d6de6e77d43d954be28",
            hubs=(Hub("openai/gsm8k", config="main"),),
            expected_tokens=500,
        ),
        Benchmark(
            name="minerva",
            title="Minerva",
            family="math",
            kind=AnswerKind.MINERVA,
            metric="pass@1",
            format="plain_math",
            rows=272,
            licence="collections state MIT; texts from MIT OpenCourseWare",
            checksum="e8d57fe29bacdf9dac4aa2fbaad1d48bc40ccde38c790310c8d05465d3e9640a",
            hubs=(Hub("math-ai/minervamath"),),
            expected_tokens=1200,
        ),
        Benchmark(
            name="olympiadbench",
            title="Olympiad",
            family="math",
            kind=AnswerKind.OLYMPIAD,
            metric="pass@1",
            format="olympiadbench",
            rows=675,
            licence="Apache-2.0 as stated on the hub",
            checksum="503be5e2bbe6662580868d3fec98b469e40d2cc43a14baecce9fb8df8d7560f9",
            hubs=(Hub("Hothan/OlympiadBench", config="OE_TO_maths_en_COMP", split="train"),),
            expected_tokens=2500,
        ),
        Benchmark(
            name="aime24",
            title="AIME24",
            family="math",
            kind=AnswerKind.MATH,
            metric="mean@32",
            format="plain_math",
            rows=30,
            licence=_MAA,
            checksum="d99db19c45108565958bd6efd501edbef38a315bbcd088296836cbe980ecaf84",
            hubs=(Hub("HuggingFaceH4/aime_2024", split="train"),),
            expected_tokens=4000,
        ),
        Benchmark(
            name="aime25",
            title="AIME25",
            family="math",
            kind=AnswerKind.MATH,
            metric="mean@32",
            format="plain_math",
            rows=30,
            licence=_MAA,
            checksum="03c713eb27187644b7c788d4a440f2563f12ca2efb0a7d2a7ad5aa21eb54c770",
            hubs=(Hub("math-ai/aime25"),),
            expected_tokens=4000,
        ),
        Benchmark(
            name="supergpqa",
            title="SuperGPQA",
            family="general",
            kind=AnswerKind.CHOICE,
            metric="pass@1",
            format="supergpqa",
            rows=26529,
            licence="ODC-BY",
            hubs=(Hub("m-a-p/SuperGPQA", split="train"),),
            expected_tokens=1000,
        ),
        Benchmark(
            name="mmlu_pro",
            title="MMLU-Pro",
            family="general",
            kind=AnswerKind.CHOICE,
            metric="pass@1",
            format="mmlu_pro",
            rows=12032,
            licence="MIT on the hub, Apache-2.0 in its repository",
            checksum="cf5ea3703f346c4ddc028e6254bdfff363aaec151f6a6e1257d709b4b4be89c2",
            hubs=(Hub("TIGER-Lab/MMLU-Pro"),),
            expected_tokens=800,
        ),
        Benchmark(
            name="bbeh",
            title="BBEH",
            family="general",
            kind=AnswerKind.BBEH,
            metric="pass@1",
            format="bbeh",
            rows=4520,
            licence="CC BY 4.0",
            hubs=(Hub("BBEH/bbeh", split="train"),),
            expected_tokens=2000,
        ),
        Benchmark(
            name="gpqa_diamond",
            title="GPQA-D",
            family="general",
            kind=AnswerKind.CHOICE,
            metric="pass@1",
            format="gpqa",
            rows=198,
            licence="CC BY 4.0; its authors ask that no example be published in plain text",
            hubs=(Hub("Idavidrein/gpqa", config="gpqa_diamond", split="train", gated=True),),
            expected_tokens=2000,
            no_republish=True,
        ),
        Benchmark(
            name="humaneval",
            title="HumanEval",
            family="general",
            kind=AnswerKind.CODE,
            metric="pass@1",
            format="humaneval",
            rows=164,
            licence="MIT",
            checksum="41ce2f29585e3176089080a153e695f4e3732a70852fb0f670d20980c04b56d0",
            hubs=(Hub("openai/openai_humaneval", config="openai_humaneval"),),
            expected_tokens=600,
        ),
        Benchmark(
            name="agieval",
            title="AGIEval",
            family="general",
            kind=AnswerKind.CHOICE,
            metric="pass@1",
            format="agieval",
            rows=3852,
            licence=_AGIEVAL,
            checksum="d02f7e51e893245993fd470318826e3f8a5a433ec17cf1b94f4ab396ae6d687f",
            hubs=tuple(Hub(f"dmayhem93/agieval-{name}") for name in _AGIEVAL_SETS),
            expected_tokens=700,
        ),
        Benchmark(
            name="bbeh_mini",
            title="BBEH mini",
            family="general",
            kind=AnswerKind.BBEH,
            metric="pass@1",
            format="bbeh_mini",
            rows=460,
            licence="CC BY 4.0",
            checksum="f0174d37ffadaaed2679f6b82e922ec20b500329ad003a8a2104b7472bbc5f99",
            hubs=(Hub("BBEH/bbeh", split="train"),),
            expected_tokens=2000,
            in_average=False,
        ),
    )
}


def benchmark(name: str) -> Benchmark:
    """The entry called `name`.

    Raises:
        ValueError: there is none; the sentence lists the names.
    """
    try:
        return BENCHMARKS[name]
    except KeyError:
        known = ", ".join(BENCHMARKS)
        raise ValueError(f"No benchmark is called {name!r}; choose from {known}.") from None


def members(family: Family) -> tuple[str, ...]:
    """Names of the benchmarks that make up Math AVG or General AVG, in the paper's order."""
    return tuple(b.name for b in BENCHMARKS.values() if b.family == family and b.in_average)
