"""Judge a free-form answer against its key: shape first, then each part by key or math-verify.

Two answers of the same shape are compared part by part, in order for tuples and intervals, in any
order for lists and sets. A part with a canonical key on both sides is decided by it, exactly;
only the rest is put to math-verify. Different shapes are put to math-verify whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from training.benchmarks.math_bounds import unbounded
from training.benchmarks.math_key import keys, plain_text, same_key, within
from training.benchmarks.math_text import (
    compact,
    goes_on,
    has_digit_gap,
    latex,
    same_clock,
    spelled,
)
from training.benchmarks.structure import Node, Shape, read_alike
from training.benchmarks.verify_pool import VerifyPool


@dataclass(frozen=True)
class Policy:
    """How a benchmark means its numbers: the tolerances within which two of them are the same."""

    relative: Fraction = Fraction(0)
    absolute: Fraction = Fraction(0)

    @property
    def exact(self) -> bool:
        """True when numbers must be equal."""
        return not self.relative and not self.absolute


EXACT = Policy()


@dataclass(frozen=True)
class Judgement:
    """`equal` with both judges' verdicts, as in `Grade`, and one clause saying why."""

    equal: bool
    reason: str
    key_equal: bool | None = None
    verify_equal: bool | None = None
    limit_hit: bool = False


_BASE = re.compile(r"([0-9A-Z.]+)_\{?\s*(\d{1,2})\s*\}?")
_DIGITS = re.compile(r"[0-9A-Z.]+")
_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)")
_NAME = re.compile(
    r"\s*\$?\s*(?:\\(?:angle|text|mathrm)\s*)?[\\A-Za-z][\w{}'\\]*(?:\([^()]*\))?\s*"
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,(?:\d{1,2}|\d{4,})")
_FUNCTION = re.compile(r"\\?(?P<name>sin|cos|tan|cot|sec|csc|log|ln|exp)\b[^=]*=")
_MAX_SIDES = 4
_MAX_VERIFY = 400
_MAX_PAIRS = 36


class Judge:
    """Compares answers, asking `pool` where our key cannot decide."""

    def __init__(self, pool: VerifyPool) -> None:
        self._pool = pool

    def judge(self, gold: str, answer: str, policy: Policy = EXACT) -> Judgement:
        """Whether `answer` means `gold`.

        Raises:
            GraderError: math-verify's processes failed; nothing is known about the answer.
        """
        gold, answer = spelled(gold), spelled(answer)
        if "," not in gold and keys(gold) and _DECIMAL_COMMA.fullmatch(answer.strip(" $")):
            answer = answer.replace(",", ".")  # against one number a comma can only be decimal
        if compact(gold) and compact(gold) == compact(answer):
            return Judgement(True, "the same text", key_equal=_known(gold, answer))
        by_key = self._single(gold, answer, policy)
        if by_key is not None:
            return by_key
        gold_node, answer_node = read_alike(gold, answer)
        if _comparable(gold_node, answer_node):
            return self._nodes(gold_node, answer_node, policy)
        worded = _worded(gold, answer)
        if worded is not None:
            return worded
        return self._ask(gold, answer)

    def _single(self, gold: str, answer: str, policy: Policy) -> Judgement | None:
        """The verdict where both are single values with a key, else None."""
        as_text = _by_text(gold, answer)
        if as_text is not None:
            return as_text
        if not policy.exact:
            close = within(gold, answer, policy.relative, policy.absolute)
            if close is not None:
                return Judgement(close, _tolerance_reason(close, policy), key_equal=close)
        same = same_key(gold, answer)
        if same and _sine_for_cosine(gold, answer):
            return Judgement(False, "values of different functions", key_equal=False)
        if same is not None:
            return Judgement(same, f"keys are {'equal' if same else 'different'}", key_equal=same)
        based = _same_base(gold, answer)
        if based is not None:
            return Judgement(based, f"digits are {'equal' if based else 'different'}", based)
        return None

    def _nodes(self, gold: Node, answer: Node, policy: Policy) -> Judgement:
        if gold.shape is Shape.SINGLE and answer.shape is Shape.SINGLE:
            if compact(gold.text) == compact(answer.text):
                return Judgement(True, "the same text")
            single = self._single(gold.text, answer.text, policy)
            worded = single or _worded(gold.text, answer.text)
            return worded or self._ask(gold.text, answer.text)
        name = gold.shape.value
        if (
            gold.ordered
            and gold.brackets != answer.brackets
            and Shape.INTERVAL
            in (
                gold.shape,
                answer.shape,
            )
        ):
            return Judgement(False, "the brackets differ", key_equal=False)
        if not gold.ordered:
            gold, answer = _distinct(gold), _distinct(answer)
        if len(gold.parts) != len(answer.parts):
            counts = f"{len(answer.parts)} parts where the key has {len(gold.parts)}"
            return Judgement(False, counts, key_equal=False)
        if gold.ordered:
            verdicts = []
            for g, a in zip(gold.parts, answer.parts, strict=True):
                verdicts.append(self._pair(g, a, policy))
                if not verdicts[-1].equal:
                    break
            return _all(verdicts, name)
        return self._any_order(gold, answer, policy, name)

    def _any_order(self, gold: Node, answer: Node, policy: Policy, name: str) -> Judgement:
        open_parts = list(answer.parts)
        verdicts: list[Judgement] = []
        asked = 0
        for part in gold.parts:
            # What the key settles comes first, so that math-verify sees only the remainder.
            part_keys = keys(part.text)
            matching = [p for p in open_parts if part_keys & keys(p.text)]
            order = matching + [p for p in open_parts if p not in matching]
            for candidate in order:
                asked += 1
                if asked > _MAX_PAIRS * len(gold.parts):
                    return Judgement(False, f"too many pairs in a {name}")
                verdict = self._pair(part, candidate, policy)
                if verdict.equal:
                    open_parts.remove(candidate)
                    verdicts.append(verdict)
                    break
                if verdict.limit_hit:  # the other pairs would cost as much, one after another
                    return Judgement(False, verdict.reason, limit_hit=True)
            else:
                return Judgement(False, f"no part of the {name} equals {part.text}", key_equal=None)
        return _all(verdicts, name)

    def _pair(self, gold: Node, answer: Node, policy: Policy) -> Judgement:
        if _comparable(gold, answer):
            return self._nodes(gold, answer, policy)
        return Judgement(False, f"a {answer.shape.value} where the key has a {gold.shape.value}")

    def _ask(self, gold: str, answer: str) -> Judgement:
        for text, side in ((gold, "key"), (answer, "answer")):
            if len(text) > _MAX_VERIFY:
                return Judgement(False, f"the {side} is too long to compare")
        if unbounded(answer) or unbounded(gold):
            return Judgement(False, "a power, factorial or binomial too large to evaluate")
        sides = [answer]
        if "=" not in gold:
            # `A = B` stands for an expression only where every side that is no name equals it.
            sides = [s for s in _EQUALS.split(answer) if not _NAME.fullmatch(s)] or [answer]
        for side in sides[:_MAX_SIDES]:
            verified = self._pool.verify(latex(gold), latex(side))
            if not verified.equal:
                break
        return Judgement(
            bool(verified.equal),
            verified.reason,
            verify_equal=verified.equal,
            limit_hit=verified.limit_hit,
        )


def _by_text(gold: str, answer: str) -> Judgement | None:
    """The verdict on what must not be put to a key or to math-verify as if it were a number."""
    clock = same_clock(gold, answer)
    if clock is not None:
        return Judgement(clock, f"times are {'equal' if clock else 'different'}")
    if goes_on(gold) != goes_on(answer) and not (keys(gold) and keys(answer)):
        return Judgement(False, "one of them goes on")
    if has_digit_gap(gold) != has_digit_gap(answer):
        return Judgement(False, "one of them is two numbers side by side")
    return None


def _comparable(gold: Node, answer: Node) -> bool:
    if gold.shape is answer.shape:
        return True
    unordered = {Shape.LIST, Shape.SET, Shape.UNION}
    ordered = {Shape.TUPLE, Shape.INTERVAL}
    shapes = {gold.shape, answer.shape}
    return shapes <= unordered or shapes <= ordered


def _distinct(node: Node) -> Node:
    """The node without repeated parts, which add nothing to a list of answers or a set."""
    kept: dict[object, Node] = {}
    for part in node.parts:
        kept.setdefault(keys(part.text) or compact(part.text), part)
    return Node(node.shape, node.text, tuple(kept.values()), node.brackets)


def _all(verdicts: list[Judgement], name: str) -> Judgement:
    asked = [v.verify_equal for v in verdicts if v.verify_equal is not None]
    by_key = [v.key_equal for v in verdicts if v.key_equal is not None]
    equal = all(v.equal for v in verdicts)
    reason = f"all parts of the {name} are equal" if equal else f"a part of the {name} differs"
    return Judgement(
        equal,
        reason,
        key_equal=all(by_key) if by_key and not asked else None,
        verify_equal=all(asked) if asked else None,
        limit_hit=any(v.limit_hit for v in verdicts),
    )


def _worded(gold: str, answer: str) -> Judgement | None:
    """Compare two answers in words; None where the key is not in words."""
    gold_text, answer_text = plain_text(gold), plain_text(answer)
    if not gold_text or re.search(r"[\\^_=+*/<>]|\d", re.sub(r"\\text\w*|\\mbox", "", gold)):
        return None
    if gold_text == answer_text:
        return Judgement(True, "the same words")
    if re.fullmatch(r"[a-z]", gold_text) and re.match(rf"{gold_text}\b", answer_text):
        stripped = re.match(r"\(?[A-Za-z]\)?[.:)]\s", answer.strip())
        return Judgement(True, "the same letter") if stripped else None
    if len(gold_text) > 1 and gold_text.replace(" ", "").isalpha() and "\\text" in gold:
        return Judgement(False, "different words")
    return None


def _sine_for_cosine(gold: str, answer: str) -> bool:
    r"""True for `\sin x = a` against `\cos x = a`: equal values of different functions."""
    functions = [_FUNCTION.match(text.strip(" $")) for text in (gold, answer)]
    return all(functions) and len({m["name"] for m in functions if m}) > 1


def _same_base(gold: str, answer: str) -> bool | None:
    r"""Compare `52_8` with `52_{8}` or, the base being the question's, with `52`."""
    gold_based = _BASE.fullmatch(compact(gold))
    answer_text = compact(answer)
    answer_based = _BASE.fullmatch(answer_text)
    if gold_based is None:
        return None
    if answer_based is not None:
        return gold_based.groups() == answer_based.groups()
    return gold_based[1] == answer_text if _DIGITS.fullmatch(answer_text) else None


def _known(gold: str, answer: str) -> bool | None:
    return True if keys(gold) and keys(answer) else None


def _tolerance_reason(close: bool, policy: Policy) -> str:
    bound = f"{float(policy.relative):.2%}" if policy.relative else f"{float(policy.absolute):g}"
    return (
        f"numbers {'agree' if close else 'differ'} within {bound}"
        if close
        else (f"numbers differ by more than {bound}")
    )
