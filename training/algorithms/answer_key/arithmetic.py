"""Arithmetic on exact values with a bounded, counted effort."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from training.algorithms.answer_key.integers import NotExact, bounded_power, factor, integer_root
from training.algorithms.answer_key.value import HALF, Exact, collect, exact, symbol, term

_FACTORING = 150  # units of the hardest factorisation
_EFFORT = 600  # units of about 10 microseconds: the hardest answer stays well under 50 ms


class Arithmetic:
    """Operations that share one bounded amount of effort, one instance an answer.

    Each raises NotExact where the result has no normal form, is too long, or the effort is
    spent. Effort is counted and not timed, so a text always reads the same.
    """

    def __init__(self) -> None:
        self._effort = _EFFORT

    def spend(self, units: int) -> None:
        """Take `units` of about 10 microseconds from what is left."""
        self._effort -= units
        if self._effort < 0:
            raise NotExact("too long a calculation")

    def add(self, a: Exact, b: Exact) -> Exact:
        """a + b."""
        self.spend(1 + len(a.terms) + len(b.terms) + (a.bits() * b.bits() >> 23))
        return collect([*a.terms.items(), *b.terms.items()])

    def subtract(self, a: Exact, b: Exact) -> Exact:
        """a - b."""
        return self.add(a, negate(b))

    def multiply(self, a: Exact, b: Exact) -> Exact:
        """a * b."""
        each = 1 + (a.symbols() + b.symbols()) // 2 + (a.bits() * b.bits() >> 23)
        self.spend(1 + len(a.terms) * len(b.terms) * each)
        products = []
        for m, c in a.terms.items():
            for n, d in b.terms.items():
                exponents = dict(m)
                for name, exponent in n:
                    exponents[name] = exponents.get(name, Fraction(0)) + exponent
                products.append(term(exponents, c * d))
        return collect(products)

    def divide(self, a: Exact, b: Exact) -> Exact:
        """a / b; conjugates clear square roots from a denominator of several terms.

        A multiple of such a denominator is divided as it is: ln(1000) by ln(10).
        """
        if len(b.terms) > 1 and a.terms.keys() == b.terms.keys():
            ratios = {a.terms[m] / c for m, c in b.terms.items()}
            if len(ratios) == 1:
                return exact(ratios.pop())
        while len(b.terms) > 1:
            conjugate = _conjugate(b)
            a, b = self.multiply(a, conjugate), self.multiply(b, conjugate)
        return self.multiply(a, self.power(b, Fraction(-1)))

    def power(self, base: Exact, exponent: Fraction) -> Exact:
        """base ** exponent; fractional exponents only of positive bases (and of 0)."""
        if not base.terms:
            if exponent <= 0:
                raise NotExact("a division by zero" if exponent else "0 to the power 0")
            return base
        if len(base.terms) == 1:
            return self._term_power(base, exponent)
        if exponent < 0:
            return self.divide(exact(1), self.power(base, -exponent))
        if exponent.denominator > 1:
            base = self._nested_root(base, exponent.denominator)
        result = exact(1)
        for bit in bin(exponent.numerator)[2:]:
            result = self.multiply(result, result)
            result = self.multiply(result, base) if bit == "1" else result
        return result

    def root(self, value: Exact, degree: int) -> Exact:
        """The real root; of a negative number only for an odd degree."""
        if degree < 2:
            raise NotExact("a root whose degree is below 2")
        if degree % 2 and len(value.terms) == 1 and sign(value) < 0:
            return negate(self.root(negate(value), degree))
        return self.power(value, Fraction(1, degree))

    def logarithm(self, value: Exact) -> Exact:
        """Natural logarithm of a positive value of one term without pi or logarithms."""
        if len(value.terms) != 1 or sign(value) < 0:
            raise NotExact("a logarithm of something that is not a positive product")
        ((monomial, coefficient),) = value.terms.items()
        powers = [(p, Fraction(k)) for p, k in self._factor(coefficient.numerator).items()]
        powers += [(p, Fraction(-k)) for p, k in self._factor(coefficient.denominator).items()]
        powers += [(int(s), x) for s, x in monomial if s.isdigit()]
        result = exact(0)
        for prime, count in powers:
            result = self.add(result, self.multiply(exact(count), symbol(f"ln {prime}")))
        for name, count in monomial:
            if name == "e":
                result = self.add(result, exact(count))
            elif not name.isdigit():
                raise NotExact("a logarithm of pi or of a logarithm")
        return result

    def _term_power(self, base: Exact, exponent: Fraction) -> Exact:
        ((monomial, coefficient),) = base.terms.items()
        if exponent.denominator > 1 and coefficient < 0:
            raise NotExact("a root of a negative number")
        exponents = {name: x * exponent for name, x in monomial}
        scale = Fraction(1)
        for part, side in ((coefficient.numerator, 1), (coefficient.denominator, -1)):
            whole = part
            if exponent.denominator > 1:
                self.spend(1 + (part.bit_length() >> 5))
                whole = integer_root(part, exponent.denominator)
            if exponent.denominator == 1 or whole**exponent.denominator == part:
                factor_out = bounded_power(whole, abs(exponent.numerator))
                scale *= Fraction(factor_out) ** (side if exponent > 0 else -side)
                continue
            for prime, count in self._factor(part).items():
                name = str(prime)
                exponents[name] = exponents.get(name, Fraction(0)) + side * count * exponent
        return collect([term(exponents, scale)])

    def _factor(self, value: int) -> dict[int, int]:
        self.spend(1 + min(isqrt(value) >> 8, _FACTORING))
        return factor(value)

    def _nested_root(self, value: Exact, degree: int) -> Exact:
        """sqrt(a + b sqrt(d)) where it is a sum of two roots; other roots of sums are refused.

        With s = sqrt(a**2 - b**2 d) rational it is sqrt((a + s)/2) +- sqrt((a - s)/2).
        """
        a = value.terms.get((), Fraction(0))
        surd = self.subtract(value, exact(a))
        if degree == 2 and a > 0 and len(surd.terms) == 1:
            square = self.multiply(surd, surd).rational()
            if square is not None and square <= a * a:
                s = self.power(exact(a * a - square), HALF).rational()
                if s is not None:
                    first = self.power(exact((a + s) / 2), HALF)
                    second = self.power(exact((a - s) / 2), HALF)
                    return self.add(first, second if sign(surd) > 0 else negate(second))
        raise NotExact("a root of a sum")


def negate(value: Exact) -> Exact:
    """-value."""
    return Exact({m: -c for m, c in value.terms.items()})


def sign(value: Exact) -> int:
    """-1, 0 or 1 for a value of at most one term (every symbol is positive)."""
    if len(value.terms) > 1:
        raise NotExact("the sign of a sum of roots or constants")
    return next((1 if c > 0 else -1 for c in value.terms.values()), 0)


def _conjugate(value: Exact) -> Exact:
    """The value with the sign of one prime's square root changed."""
    exponents = [dict(m) for m in value.terms]
    for name in sorted({s for m in value.terms for s, _ in m if s.isdigit()}):
        if {m.get(name, HALF) for m in exponents} == {HALF} and any(
            name not in m for m in exponents
        ):
            flipped = {m: -c if dict(m).get(name) else c for m, c in value.terms.items()}
            return Exact(flipped)
    raise NotExact("a division by a sum that no conjugate makes rational")
