"""Labels are exact, canonical and their own labels, for values no table foresees."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.algorithms.answer_key.arithmetic import Arithmetic, negate
from training.algorithms.answer_key.integers import (
    NotExact,
    factor,
    format_digits,
    integer_root,
    parse_digits,
)
from training.algorithms.answer_key.value import Exact, exact, symbol
from training.algorithms.answers import canonical_label, read_bare, read_output

integers = st.integers(-(10**30), 10**30)
rationals = st.builds(Fraction, integers, st.integers(1, 10**12))

_NAMES = {"sqrt": math.sqrt, "ln": math.log, "pi": math.pi, "e": math.e, "__builtins__": {}}


def approximate(label: str) -> float:
    """Value of a label by floating point, through Python's own parser."""
    return float(eval(label.replace("^", "**"), dict(_NAMES)))


@given(rationals)
def test_every_spelling_of_a_rational_is_its_label(value: Fraction) -> None:
    n, d = value.numerator, value.denominator
    sign, m = ("-" if n < 0 else ""), abs(n)
    spellings = [
        f"{n}/{d}",
        rf"\frac{{{n}}}{{{d}}}",
        rf"{sign}\dfrac{{{m}}}{{{d}}}",
        rf"$\boxed{{{n}/{d}}}$",
        f"x = {n * 7}/{d * 7}",
        f"{n * 100}/{d}%",
        f"**{n:,}/{d}**",
        f"{m}/{d}".join(["-(" if sign else "(", ")"]),
        f"{n // d} + {n % d}/{d}",
        f"{n}/{d} apples",
    ]
    assert {canonical_label(s) for s in spellings} == {str(value)}


@given(integers, st.integers(0, 20))
def test_every_spelling_of_a_decimal_is_its_label(n: int, places: int) -> None:
    value = Fraction(n, 10**places)
    digits = str(abs(n)).rjust(places + 1, "0")
    whole, decimals = digits[: len(digits) - places], digits[len(digits) - places :]
    sign = "-" if n < 0 else ""
    spellings = [
        f"{sign}{whole}.{decimals}",
        f"{sign}00{whole}.{decimals}00",
        f"{n}e-{places}",
        f"{n}E-0{places}",
        rf"{n} \times 10^{{-{places}}}",
        f"{n}*10**-{places}",
        f"−{whole}.{decimals}" if n < 0 else f"+{whole}.{decimals}",
        rf"${sign}{int(whole):,}.{decimals}$",
        f"{sign}{int(whole):_}.{decimals}",
        rf"{sign}{int(whole):,}.{decimals}".replace(",", "{,}"),
        rf"{sign}{int(whole):,}.{decimals}".replace(",", r"\,"),
    ]
    assert {canonical_label(s) for s in spellings} == {str(value)}


@given(rationals, rationals)
def test_labels_are_equal_exactly_when_values_are(a: Fraction, b: Fraction) -> None:
    assert (canonical_label(str(a)) == canonical_label(str(b))) == (a == b)


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(2, 10**5))
def test_mixed_numbers(whole: int, numerator: int, denominator: int) -> None:
    numerator %= denominator
    if numerator:
        value = str(whole + Fraction(numerator, denominator))
        assert canonical_label(f"{whole} {numerator}/{denominator}") == value
        assert canonical_label(rf"{whole}\frac{{{numerator}}}{{{denominator}}}") == value


_leaves = st.one_of(
    st.integers(0, 30).map(lambda n: (str(n), float(n))),
    st.integers(2, 30).map(lambda n: (rf"\sqrt{{{n}}}", math.sqrt(n))),
    st.integers(2, 9).map(lambda n: (f"2^{{1/{n}}}", 2 ** (1 / n))),
    st.sampled_from([(r"\pi", math.pi), ("e", math.e), (r"\ln(6)", math.log(6)), (".5", 0.5)]),
    st.sampled_from([("3!", 6.0), (r"\binom{4}{2}", 6.0), ("1e-2", 0.01), (r"\frac34", 0.75)]),
)
Written = tuple[str, float]


def _combine(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: (f"({p[0][0]}) + ({p[1][0]})", p[0][1] + p[1][1])),
        pair.map(lambda p: (f"({p[0][0]})-({p[1][0]})", p[0][1] - p[1][1])),
        pair.map(lambda p: (rf"({p[0][0]})\cdot ({p[1][0]})", p[0][1] * p[1][1])),
        pair.map(lambda p: (f"({p[0][0]})({p[1][0]})", p[0][1] * p[1][1])),
        pair.map(
            lambda p: (
                rf"\frac{{{p[0][0]}}}{{{p[1][0]}}}",
                p[0][1] / p[1][1] if p[1][1] else math.nan,
            )
        ),
        inner.map(lambda x: (f"-({x[0]})", -x[1])),
        inner.map(lambda x: (f"({x[0]})^2", x[1] ** 2)),
    )


@given(st.recursive(_leaves, _combine, max_leaves=5))
def test_a_closed_form_has_its_own_value_and_its_label_is_its_own_label(written: Written) -> None:
    text, value = written
    answer = read_bare(text)
    if answer.label is None:
        assert answer.reason
        return
    scale = max(1.0, abs(value))
    # a value of 0 that floating point misses makes its reciprocal meaningless
    if math.isfinite(value) and scale < 1e6:
        assert math.isclose(approximate(answer.label), value, rel_tol=1e-6, abs_tol=1e-6 * scale)
    assert canonical_label(answer.label) == answer.label


surds = st.lists(
    st.tuples(st.integers(-9, 9), st.sampled_from([1, 2, 3, 5, 6, 10])), min_size=1, max_size=4
)


def value_of(parts: list[tuple[int, int]]) -> Exact:
    work = Arithmetic()
    total = exact(0)
    for coefficient, radicand in parts:
        root = work.root(exact(radicand), 2)
        total = work.add(total, work.multiply(exact(coefficient), root))
    return total


@given(surds, surds, surds)
def test_arithmetic_obeys_the_laws_of_a_field(
    x: list[tuple[int, int]], y: list[tuple[int, int]], z: list[tuple[int, int]]
) -> None:
    work, a, b, c = Arithmetic(), value_of(x), value_of(y), value_of(z)
    assert work.multiply(a, b) == work.multiply(b, a)
    left = work.multiply(a, work.add(b, c))
    assert left == work.add(work.multiply(a, b), work.multiply(a, c))
    assert work.add(a, negate(a)) == exact(0)
    if b.terms:
        work = Arithmetic()
        assert work.multiply(work.divide(a, b), b) == a


@given(st.integers(1, 60), st.integers(0, 20), st.integers(2, 6))
def test_roots_of_powers_are_exact(base: int, more: int, degree: int) -> None:
    work = Arithmetic()
    assert work.root(exact(base**degree), degree) == exact(base)
    root = work.root(exact(base**degree * 2), degree)
    assert work.power(root, Fraction(degree)) == exact(base**degree * 2)
    nested = work.power(work.add(exact(more), work.root(exact(base), 2)), Fraction(2))
    assert work.root(nested, 2) == work.add(exact(more), work.root(exact(base), 2))


@given(st.integers(1, 10**10))
def test_factorisation(value: int) -> None:
    factors = factor(value)
    product = 1
    for prime, count in factors.items():
        product *= prime**count
        assert all(prime % d for d in range(2, min(prime, 200)))
    assert product == value


@given(st.integers(0, 10**60), st.integers(2, 70))
def test_integer_roots(value: int, degree: int) -> None:
    root = integer_root(value, degree)
    assert root**degree <= value < (root + 1) ** degree


@given(st.integers(0, 2**20000))
def test_decimal_text_of_long_integers(value: int) -> None:
    text = format_digits(value)
    assert parse_digits(text) == value
    assert text == "0" or text[0] != "0"
    assert len(text) < 600 or int(text[-600:]) == value % 10**600
    assert format_digits(-value) == ("-" + text if value else "0")


def test_unbounded_factoring_is_refused() -> None:
    work = Arithmetic()
    assert factor(10**12 + 39) == {10**12 + 39: 1}
    assert factor((10**6 + 3) ** 2) == {10**6 + 3: 2}
    for hard, reason in (((10**12 + 39) * (10**12 + 61), "factor"), (2**600 + 1, "too long")):
        with pytest.raises(NotExact, match=reason):
            work.root(exact(hard), 2)


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    for answer in (read_bare(text), read_output(text), read_output("Final Answer: " + text)):
        assert (answer.label is None) == (answer.status == "invalid")
        if answer.label is not None:
            assert canonical_label(answer.label) == answer.label


_PIECES = st.sampled_from(
    [
        "1", "2", "12", "0", "7", ".5", "1,000", "999", "%", r"\frac", r"\frac12", "{", "}", "(",
        ")", "[", "]", "+", "-", "*", "/", "^", "**", "!", r"\sqrt", r"\sqrt[3]{", r"\pi", "e",
        "pi", r"\binom", "C(5,2)", r"\ln", r"\log_2", r"\sin", "|", "x", "=", " ", r"\boxed{", "cm",
        r"\text{", " apples", "million", ".", ",", "_", "½", "²", "−", "×", r"^\circ", "$", "e5",
        r"\cdot", "mod", r"\approx", " is ", "None", "\n", "`", "√", "...", r"\overline{3}", "gcd(",
    ]
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(_PIECES, min_size=1, max_size=12).map("".join))
def test_no_mixture_of_pieces_raises(text: str) -> None:
    label = canonical_label(text)
    assert label is None or canonical_label(label) == label


def test_symbols_are_told_apart() -> None:
    work = Arithmetic()
    product = work.multiply(symbol("pi"), symbol("e"))
    assert product.label() == "e*pi"
    assert work.divide(product, symbol("e")) == symbol("pi")
    assert work.power(product, Fraction(-1, 2)).label() == "e^(-1/2)*pi^(-1/2)"
