"""How often a batch of problems repeats itself (paper eq. 9; docs/method.md section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

REPETITION_DISTANCE = 0.6
"""BLEU distance below which two problems count as one, in the paper's Table 3."""

_ORDER = 4


@dataclass(frozen=True)
class _Ngrams:
    """Counted n-grams of orders 1 to 4 of one tokenised text."""

    counts: Counter[tuple[str, ...]]
    length: int
    totals: list[int]


@cache
def _tokenizer() -> Callable[[str], str]:
    from sacrebleu.metrics.bleu import BLEU

    tokenizer: Callable[[str], str] = BLEU().tokenizer
    return tokenizer


def _ngrams(text: str) -> _Ngrams:
    # Imported here: the command line starts without it, and only curriculum batches need it.
    from sacrebleu.metrics.helpers import extract_all_word_ngrams

    counts, length = extract_all_word_ngrams(_tokenizer()(text.rstrip()), 1, _ORDER)
    totals = [max(0, length - order) for order in range(_ORDER)]
    return _Ngrams(counts, length, totals)


def _distance(a: _Ngrams, b: _Ngrams) -> float:
    from sacrebleu.metrics.bleu import BLEU

    correct = [0] * _ORDER
    for ngram in a.counts.keys() & b.counts.keys():
        correct[len(ngram) - 1] += min(a.counts[ngram], b.counts[ngram])
    # Matches are the same in both directions; only totals and lengths change places.
    scores = [
        BLEU.compute_bleu(
            correct[:],
            hypothesis.totals[:],
            hypothesis.length,
            reference.length,
            smooth_method="exp",
            effective_order=True,
        ).score
        for hypothesis, reference in ((a, b), (b, a))
    ]
    return 1.0 - sum(scores) / 200.0


def bleu_distance(a: str, b: str) -> float:
    """Return 1 - BLEU/100 of two texts, BLEU being the mean of both directions.

    BLEU is sacrebleu's sentence BLEU with effective order and its default tokeniser. Texts without
    a common token, and a text without any token, have distance 1.
    """
    return _distance(_ngrams(a), _ngrams(b))


def components(texts: Sequence[str | None], threshold: float = REPETITION_DISTANCE) -> list[int]:
    """Return, for each text, the size of its component in the graph of near repetitions.

    Two texts are joined when their distance is below ``threshold``, and always when they are equal
    but for white space. None and blank texts stand alone. Dividing by the batch size gives R_rep.
    """
    parent = list(range(len(texts)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        key = " ".join(text.split()) if text else ""
        if key:
            parent[i] = first.setdefault(key, i)
    distinct = list(first.values())
    grams = {i: _ngrams(texts[i] or "") for i in distinct}
    for position, i in enumerate(distinct):
        for j in distinct[:position]:
            if root(i) != root(j) and _distance(grams[i], grams[j]) < threshold:
                parent[root(i)] = root(j)
    sizes = Counter(root(i) for i in range(len(texts)))
    return [sizes[root(i)] for i in range(len(texts))]
