"""Bounded exact integer arithmetic: decimal text, integer roots, factorisation.

Every function here does an amount of work that is bounded before it starts, so that no
answer a model writes can make the reader hang (docs/method.md section 2).
"""

from __future__ import annotations

from functools import lru_cache

MAX_DIGITS = 10_000
"""Longest numerator or denominator, in decimal digits, that an answer may have."""

MAX_BITS = 33_219
"""The bound that is checked; every number within it has at most MAX_DIGITS digits."""

_CHUNK = 600  # below the smallest limit that Python allows for int <-> str conversions
_FACTOR_BITS = 512
_TRIAL_LIMIT = 100_000
_PRIMALITY_LIMIT = 3_317_044_064_679_887_385_961_981
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


class NotExact(ValueError):
    """The text has no exact value that this project reads; the message is the short reason."""


def parse_digits(digits: str) -> int:
    """Integer written by ASCII `digits`, whatever Python's own conversion limit is."""
    if len(digits) <= _CHUNK:
        return int(digits)
    cut = len(digits) // 2
    return parse_digits(digits[:-cut]) * 10**cut + parse_digits(digits[-cut:])


def format_digits(value: int) -> str:
    """Decimal text of an integer, whatever Python's own conversion limit is."""
    if value < 0:
        return "-" + format_digits(-value)
    if value < 10**_CHUNK:
        return str(value)
    cut = value.bit_length() * 301 // 2000  # about half of the decimal digits
    high, low = divmod(value, 10**cut)
    return format_digits(high) + format_digits(low).rjust(cut, "0")


def require_size(value: int) -> int:
    """Return `value`; raise NotExact when it has more than MAX_DIGITS digits."""
    if value.bit_length() > MAX_BITS:
        raise NotExact(f"a number longer than {MAX_DIGITS:,} digits")
    return value


def bounded_power(base: int, exponent: int) -> int:
    """base ** exponent for exponent >= 0, refused with NotExact before it grows too long."""
    if abs(base) > 1 and (abs(base).bit_length() - 1) * exponent > MAX_BITS:
        raise NotExact(f"a number longer than {MAX_DIGITS:,} digits")
    if abs(base) <= 1:
        return base if exponent % 2 else base * base if exponent else 1
    return require_size(base**exponent)


def integer_root(value: int, degree: int) -> int:
    """Largest r with r**degree <= value, for value >= 0 and degree >= 2 (Newton's method)."""
    if value < 2 or degree >= value.bit_length():
        return min(value, 1)
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better


@lru_cache(maxsize=1)
def _small_primes() -> tuple[int, ...]:
    sieve = bytearray([1]) * (_TRIAL_LIMIT + 1)
    sieve[:2] = b"\0\0"
    for p in range(2, int(_TRIAL_LIMIT**0.5) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, _TRIAL_LIMIT + 1, p)))
    return tuple(p for p, prime in enumerate(sieve) if prime)


def _is_prime(value: int) -> bool:
    """Miller and Rabin's test, proven for these witnesses below _PRIMALITY_LIMIT."""
    shift = ((value - 1) & (1 - value)).bit_length() - 1
    odd = (value - 1) >> shift
    for witness in _WITNESSES:
        x = pow(witness, odd, value)
        if x in (1, value - 1):
            continue
        if not any((x := x * x % value) == value - 1 for _ in range(shift - 1)):
            return False
    return True


def factor(value: int) -> dict[int, int]:
    """Prime factorisation {prime: exponent} of value >= 1.

    Raises NotExact when it cannot be completed with a bounded effort: trial division to
    10**5, then a cofactor that is a prime below 3.3e24 or a square or cube of one.
    """
    if value.bit_length() > _FACTOR_BITS:
        raise NotExact("a root or logarithm of too long a number")
    factors: dict[int, int] = {}
    for p in _small_primes():
        if p * p > value:
            break
        while value % p == 0:
            factors[p] = factors.get(p, 0) + 1
            value //= p
    if value == 1:
        return factors
    for degree in (1, 2, 3):
        root = integer_root(value, degree) if degree > 1 else value
        prime = root < _TRIAL_LIMIT**2 or (root < _PRIMALITY_LIMIT and _is_prime(root))
        if root**degree == value and prime:
            return {**factors, root: degree}
    raise NotExact("a root or logarithm of a number that is too hard to factor")
