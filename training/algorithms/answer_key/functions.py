"""Named functions that an answer may use, on exact values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, comb, factorial, floor, gcd, lcm, perm

from training.algorithms.answer_key.arithmetic import Arithmetic, negate, sign
from training.algorithms.answer_key.integers import MAX_BITS, NotExact
from training.algorithms.answer_key.value import HALF, Exact, exact, symbol

Function = Callable[[Arithmetic, Sequence[Exact]], Exact]

CONSTANTS = {"pi": "pi", "Pi": "pi", "PI": "pi", "e": "e", "exponentialE": "e"}


def to_rational(value: Exact) -> Fraction:
    """The value as a Fraction; raises NotExact where it is irrational."""
    number = value.rational()
    if number is None:
        raise NotExact("a rational number was needed")
    return number


def to_integer(value: Exact) -> int:
    """The value as an int; raises NotExact where it is none."""
    number = to_rational(value)
    if number.denominator != 1:
        raise NotExact("an integer was needed")
    return number.numerator


def power(work: Arithmetic, base: Exact, exponent: Exact) -> Exact:
    """base ** exponent for a rational exponent."""
    return work.power(base, to_rational(exponent))


def factorial_of(work: Arithmetic, value: Exact) -> Exact:
    """n! for an integer n >= 0, refused by its length before it is computed."""
    n = to_integer(value)
    if n < 0:
        raise NotExact("a factorial of a negative number")
    # n! > (n/3)**n, so what passes here is at most a little longer than the limit
    if n > 9 and n * ((n // 3).bit_length() - 1) > MAX_BITS:
        raise NotExact("a factorial that is too long")
    work.spend(1 + n // 10)
    return exact(factorial(n))


def binomial(work: Arithmetic, top: Exact, bottom: Exact) -> Exact:
    """Binomial coefficient of two integers >= 0; 0 where bottom > top."""
    return _count(work, comb, top, bottom, min)


def _permutations(work: Arithmetic, top: Exact, bottom: Exact) -> Exact:
    return _count(work, perm, top, bottom, lambda k, _: k)


def _count(
    work: Arithmetic,
    count: Callable[[int, int], int],
    top: Exact,
    bottom: Exact,
    factors: Callable[[int, int], int],
) -> Exact:
    n, k = to_integer(top), to_integer(bottom)
    if n < 0 or k < 0:
        raise NotExact("a binomial coefficient of a negative number")
    if k > n:
        return exact(0)
    steps = factors(k, n - k)
    if steps * n.bit_length() > 2 * MAX_BITS:
        raise NotExact("a binomial coefficient that is too long")
    work.spend(1 + steps // 10)
    return exact(count(n, k))


def _cosine(work: Arithmetic, angle: Exact) -> Exact:
    """cos of a multiple of pi/12."""
    twelfths = to_rational(work.divide(angle, work.multiply(exact(Fraction(1, 12)), symbol("pi"))))
    if twelfths.denominator != 1:
        raise NotExact("a sine or cosine of an angle that is no multiple of pi/12")
    k = min(twelfths.numerator % 24, -twelfths.numerator % 24)
    if k > 6:
        return negate(_cosine_first_quadrant(work, 12 - k))
    return _cosine_first_quadrant(work, k)


def _cosine_first_quadrant(work: Arithmetic, k: int) -> Exact:
    # cos(k pi/12) = (sqrt(a) +- sqrt(b)) / 4
    a, b, side = ((16, 0, 1), (6, 2, 1), (12, 0, 1), (8, 0, 1), (4, 0, 1), (6, 2, -1), (0, 0, 1))[k]
    roots = [work.power(exact(n), HALF) for n in (a, b)]
    return work.multiply(
        work.add(roots[0], work.multiply(exact(side), roots[1])), exact(Fraction(1, 4))
    )


def _sine(work: Arithmetic, angle: Exact) -> Exact:
    right = work.multiply(exact(HALF), symbol("pi"))
    return _cosine(work, work.subtract(right, angle))


def _tangent(work: Arithmetic, angle: Exact) -> Exact:
    return work.divide(_sine(work, angle), _cosine(work, angle))


def _absolute(work: Arithmetic, value: Exact) -> Exact:
    return negate(value) if sign(value) < 0 else value


def logarithm(work: Arithmetic, value: Exact, base: Exact) -> Exact:
    """Logarithm of `value` to `base`."""
    return work.divide(work.logarithm(value), work.logarithm(base))


def modulo(work: Arithmetic, value: Exact, modulus: Exact) -> Exact:
    """Remainder of an integer by a positive integer."""
    n, m = to_integer(value), to_integer(modulus)
    if m <= 0:
        raise NotExact("a remainder by a modulus that is not positive")
    work.spend(1 + (value.bits() * modulus.bits() >> 23))
    return exact(n % m)


ANY_NUMBER = (-1,)

FUNCTIONS: dict[str, tuple[tuple[int, ...], Function]] = {
    # name: (numbers of arguments allowed, function)
    "sqrt": ((1,), lambda w, a: w.root(a[0], 2)),
    "cbrt": ((1,), lambda w, a: w.root(a[0], 3)),
    "abs": ((1,), lambda w, a: _absolute(w, a[0])),
    "floor": ((1,), lambda w, a: exact(floor(to_rational(a[0])))),
    "ceil": ((1,), lambda w, a: exact(ceil(to_rational(a[0])))),
    "exp": ((1,), lambda w, a: power(w, symbol("e"), a[0])),
    "ln": ((1,), lambda w, a: w.logarithm(a[0])),
    "sin": ((1,), lambda w, a: _sine(w, a[0])),
    "cos": ((1,), lambda w, a: _cosine(w, a[0])),
    "tan": ((1,), lambda w, a: _tangent(w, a[0])),
    "factorial": ((1,), lambda w, a: factorial_of(w, a[0])),
    "comb": ((2,), lambda w, a: binomial(w, a[0], a[1])),
    "perm": ((2,), lambda w, a: _permutations(w, a[0], a[1])),
    "frac": ((2,), lambda w, a: w.divide(a[0], a[1])),
    "gcd": (ANY_NUMBER, lambda w, a: exact(gcd(*map(to_integer, a)))),
    "lcm": (ANY_NUMBER, lambda w, a: exact(lcm(*map(to_integer, a)))),
    "max": (ANY_NUMBER, lambda w, a: exact(max(map(to_rational, a)))),
    "min": (ANY_NUMBER, lambda w, a: exact(min(map(to_rational, a)))),
    "pow": ((2,), lambda w, a: power(w, a[0], a[1])),
}
_ALIASES = {
    "frac": ("dfrac", "tfrac", "cfrac", "Fraction", "Rational"),
    "comb": ("binom", "dbinom", "tbinom", "binomial", "C", "nCr"),
    "perm": ("nPr",),
    "abs": ("Abs",),
    "ceil": ("ceiling",),
}
for _name, _others in _ALIASES.items():
    FUNCTIONS.update(dict.fromkeys(_others, FUNCTIONS[_name]))
