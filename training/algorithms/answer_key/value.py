"""Exact real numbers in a normal form, whose label is the canonical answer key.

A value is a finite sum of terms, each a rational times a product of powers of symbols. The
symbols are primes, with exponents strictly between 0 and 1, and `pi`, `e` and `ln p`, with any
rational exponent. Products of fractional powers of distinct primes are linearly independent over
the rationals (A. S. Besicovitch, J. London Math. Soc. 15, 1940), so what is built from roots has
exactly one such form; where pi, e and logarithms are mixed, the form is unique if Schanuel's
conjecture holds. Equal values therefore have equal labels, and voting is transitive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from training.algorithms.answer_key.integers import (
    NotExact,
    bounded_power,
    format_digits,
    require_size,
)

Monomial = tuple[tuple[str, Fraction], ...]
"""(symbol, exponent) pairs sorted by symbol; the empty tuple stands for 1."""

HALF = Fraction(1, 2)

_MAX_TERMS = 16
_MAX_EXPONENT_BITS = 40
_MAX_RADICAND = 10**10  # every radicand below it can be factored again when a label is read


@dataclass(frozen=True)
class Exact:
    """Coefficients by monomial: none zero, and no integer power of a prime in a monomial."""

    terms: Mapping[Monomial, Fraction]

    def rational(self) -> Fraction | None:
        """The value where it is rational, else None."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(()) if len(self.terms) == 1 else None

    def bits(self) -> int:
        """Bits of the longest coefficient, numerator and denominator together."""
        return max((_bits(c) for c in self.terms.values()), default=0)

    def symbols(self) -> int:
        """The largest number of symbols in one term."""
        return max(map(len, self.terms), default=0)

    def label(self) -> str:
        """The canonical key, such as `-1/2`, `2*sqrt(3)` or `1+1/3*pi`; it reads as itself."""
        if not self.terms:
            return "0"
        parts = [_term_label(m, self.terms[m]) for m in sorted(self.terms)]
        return "+".join(parts).replace("+-", "-")


def exact(value: Fraction | int) -> Exact:
    """A rational number as a value; raises NotExact when it is too long."""
    return collect([((), Fraction(value))])


def symbol(name: str) -> Exact:
    """The constant `pi` or `e`, or `ln p` for a prime p."""
    return Exact({((name, Fraction(1)),): Fraction(1)})


def collect(pairs: Collection[tuple[Monomial, Fraction]]) -> Exact:
    """Sum of terms in normal form; raises NotExact when it is too long."""
    if len(pairs) > _MAX_TERMS**2:
        raise NotExact("a sum of too many different roots or constants")
    terms: dict[Monomial, Fraction] = {}
    for monomial, coefficient in pairs:
        terms[monomial] = terms[monomial] + coefficient if monomial in terms else coefficient
    terms = {m: c for m, c in terms.items() if c}
    if len(terms) > _MAX_TERMS:
        raise NotExact("a sum of too many different roots or constants")
    for c in terms.values():
        require_size(c.numerator)
        require_size(c.denominator)
    return Exact(terms)


def term(exponents: Mapping[str, Fraction], coefficient: Fraction) -> tuple[Monomial, Fraction]:
    """Normal form of coefficient * prod symbol**exponent: whole powers of primes move out."""
    kept = []
    for name in sorted(exponents):
        exponent = exponents[name]
        if _bits(exponent) > _MAX_EXPONENT_BITS:
            raise NotExact("too long an exponent")
        if name.isdigit() and (whole := floor(exponent)):
            power = bounded_power(int(name), abs(whole))
            coefficient = coefficient * power if whole > 0 else coefficient / power
            exponent -= whole
        if exponent:
            kept.append((name, exponent))
    return tuple(kept), coefficient


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _term_label(monomial: Monomial, coefficient: Fraction) -> str:
    primes = {int(s): x for s, x in monomial if s.isdigit()}
    factors = [_power_label(s, x) for s, x in monomial if not s.isdigit()]
    radicand = 1
    for prime in primes:
        radicand *= prime
    if primes and radicand < _MAX_RADICAND and set(primes.values()) == {HALF}:
        factors.append(f"sqrt({radicand})")
    else:
        factors += [_power_label(str(p), x) for p, x in primes.items()]
    numerator, denominator = coefficient.numerator, coefficient.denominator
    number = format_digits(numerator) + (f"/{format_digits(denominator)}" * (denominator > 1))
    if not factors:
        return number
    return {"1": "", "-1": "-"}.get(number, number + "*") + "*".join(factors)


def _power_label(name: str, exponent: Fraction) -> str:
    base = f"ln({name[3:]})" if name.startswith("ln ") else name
    if exponent == 1:
        return base
    plain = exponent.denominator == 1 and exponent > 0
    return f"{base}^{exponent}" if plain else f"{base}^({exponent})"
