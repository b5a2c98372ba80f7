"""Recursive-descent reader of closed forms, in the LaTeX and plain spellings people use.

    expression = term (("+" | "-") term)*
    term       = sign* factor ((times | divide | mod | nothing) factor)* percent?
    factor     = primary "!"? ("^" exponent)?
    primary    = numeral | group | call | constant

Powers associate to the right and bind tighter than a sign: -2^2 is -4. What people read in two
ways is refused: 1/2(3), 1/2\\pi, 5!!, two numbers side by side, 20+30%.
"""

from __future__ import annotations

import re
from fractions import Fraction

from training.algorithms.answer_key import tokens
from training.algorithms.answer_key.arithmetic import Arithmetic, negate
from training.algorithms.answer_key.functions import (
    ANY_NUMBER,
    CONSTANTS,
    FUNCTIONS,
    binomial,
    factorial_of,
    logarithm,
    modulo,
    power,
)
from training.algorithms.answer_key.integers import NotExact, parse_digits
from training.algorithms.answer_key.numerals import read_mixed_part, read_numeral
from training.algorithms.answer_key.value import Exact, exact, symbol

_MAX_DEPTH = 30

_TWO_ARGUMENTS = {"frac", "dfrac", "tfrac", "cfrac", "binom", "dbinom", "tbinom"}
_TRIGONOMETRIC = {"sin", "cos", "tan"}


class Grammar:
    """Reads one expression from `text`, from `position` on; it stops where none continues.

    Every method advances `position` past what it reads and raises NotExact where the text is no
    closed form with one exact value. `percent` False makes a percent sign a unit.
    """

    def __init__(self, text: str, work: Arithmetic, percent: bool) -> None:
        self.text = text
        self.position = 0
        self._work = work
        self._percent = percent
        self._depth = 0
        self._commas = True  # whether a comma may group digits here
        self._degrees = False  # whether a degree sign means an angle here, not a unit

    def expression(self) -> Exact:
        """Value of the longest expression that starts at the position."""
        self._enter()
        value, percent = self._term()
        while sign := self._take(tokens.SIGN):
            other, other_percent = self._term()
            if percent != other_percent:
                raise NotExact("a percentage added to a number")
            value = self._work.add(value, negate(other) if sign[1] == "-" else other)
        self._depth -= 1
        return value

    def _term(self) -> tuple[Exact, bool]:
        negative = self._signs()
        value = self._factor()
        divided = False
        while True:
            if self._take(tokens.TIMES):
                value, divided = self._work.multiply(value, self._signed_factor()), False
            elif self._take(tokens.DIVIDE):
                value, divided = self._work.divide(value, self._signed_factor()), True
            elif self._take(tokens.MOD):
                value, divided = modulo(self._work, value, self._signed_factor()), True
            elif self._multiplies_silently():
                if divided:
                    raise NotExact("a product without a sign after a division")
                value = self._work.multiply(value, self._factor())
            else:
                break
        if self._degrees and self._take(tokens.DEGREES):
            value = self._work.multiply(value, self._one_degree())
        percent = self._take(tokens.PERCENT) is not None
        if percent and self._percent:
            value = self._work.multiply(value, exact(Fraction(1, 100)))
        return (negate(value) if negative else value), percent

    def _signs(self) -> bool:
        negative = False
        while sign := self._take(tokens.SIGN):
            negative ^= sign[1] == "-"
        return negative

    def _signed_factor(self) -> Exact:
        negative = self._signs()
        value = self._factor()
        return negate(value) if negative else value

    def _factor(self, mixed: bool = True) -> Exact:
        value = self._primary(mixed)
        if self._take(tokens.FACTORIAL):
            if self._take(tokens.FACTORIAL):
                raise NotExact("a double factorial, or a factorial of a factorial")
            value = factorial_of(self._work, value)
        if not tokens.DEGREES.match(self.text, self.position) and self._take(tokens.POWER):
            self._enter()
            negative = self._signs()
            exponent = self._factor(mixed=False)
            value = power(self._work, value, negate(exponent) if negative else exponent)
            self._depth -= 1
        return value

    def _primary(self, mixed: bool) -> Exact:
        if numeral := read_numeral(self.text, self.position, self._commas):
            number, self.position, whole = numeral
            if mixed and whole and (part := read_mixed_part(self.text, self.position)):
                self.position = part[1]
                number += part[0]
            elif whole and self._take(tokens.INFIX_CHOOSE):
                return binomial(self._work, exact(number), self._primary(mixed=False))
            return exact(number)
        if opening := self._take(tokens.OPEN):
            return self._group(opening[1])
        if root := self._take(tokens.ROOT_SIGN):
            return self._work.root(self._argument(), 2 + "√∛∜".index(root[1]))
        if name := self._take(tokens.NAME):
            return self._named(name[2])
        raise NotExact("no number where one is needed" if self.position else "no number")

    def _group(self, opening: str) -> Exact:
        commas, self._commas = self._commas, False
        value = self.expression()
        if opening == "{" and (infix := self._take(tokens.CHOOSE)):
            call = FUNCTIONS["comb" if infix[1] == "choose" else "frac"][1]
            value = call(self._work, [value, self.expression()])
        self._expect(tokens.CLOSE[opening])
        self._commas = commas
        if opening in tokens.CALL_OF_GROUP:
            return FUNCTIONS[tokens.CALL_OF_GROUP[opening]][1](self._work, [value])
        return value

    def _named(self, name: str) -> Exact:
        if name in CONSTANTS:
            return symbol(CONSTANTS[name])
        if name == "sqrt" and (degree := self._take(tokens.ROOT_DEGREE)):
            return self._work.root(self._argument(), int(degree[1]))
        if name == "log":
            base = self._expect(tokens.LOG_BASE, "a logarithm without its base")
            argument = self._bare_argument()
            return logarithm(self._work, argument, exact(parse_digits(base[1] or base[2])))
        if name not in FUNCTIONS:
            raise NotExact("a word or letter that is no number")
        counts, function = FUNCTIONS[name]
        degrees, self._degrees = self._degrees, name in _TRIGONOMETRIC
        if self._take(tokens.PARENTHESIS):
            arguments = self._arguments()
        elif name in _TWO_ARGUMENTS:
            arguments = [self._argument(tokens.DIGIT), self._argument(tokens.DIGIT)]
        else:
            arguments = [self._argument() if name == "sqrt" else self._bare_argument()]
            if self._degrees and self._take(tokens.DEGREES):
                arguments[0] = self._work.multiply(arguments[0], self._one_degree())
            if name != "sqrt" and self._multiplies_silently():
                raise NotExact("a function's argument without parentheses")
        self._degrees = degrees
        if len(arguments) not in counts and counts != ANY_NUMBER:
            raise NotExact("a function with a wrong number of arguments")
        return function(self._work, arguments)

    def _bare_argument(self) -> Exact:
        """A function's argument, refused where what follows may belong to it.

        ln e^2 is read as ln(e^2) and as (ln e)^2. Brackets make it clear, and so does another
        function behind a division: ln 8/ln 2.
        """
        grouped = any(
            pattern.match(self.text, self.position)
            for pattern in (tokens.PARENTHESIS, tokens.BRACE)
        )
        value = self._argument()
        if self._degrees and tokens.DEGREES.match(self.text, self.position):
            return value
        inside = any(
            pattern.match(self.text, self.position) for pattern in (tokens.POWER, tokens.FACTORIAL)
        )
        if divide := tokens.DIVIDE.match(self.text, self.position):
            name = tokens.NAME.match(self.text, divide.end())
            inside = name is None or name[2] not in (*FUNCTIONS, "log")
        if inside and not grouped:
            raise NotExact("a function's argument without parentheses")
        return value

    def _arguments(self) -> list[Exact]:
        commas, self._commas = self._commas, False
        arguments = [self.expression()]
        while self._take(tokens.COMMA):
            arguments.append(self.expression())
        self._expect(tokens.CLOSE["("])
        self._commas = commas
        return arguments

    def _argument(self, numeral: re.Pattern[str] | None = None) -> Exact:
        """What a LaTeX command takes without parentheses: a group, a numeral, or a command.

        `numeral` restricts the digits it takes: the 1 and the 2 of \\frac12 are two arguments.
        """
        if self._take(tokens.BRACE):
            value = self.expression()
            self._expect(tokens.CLOSE["{"])
            return value
        if numeral and (digit := self._take(numeral)):
            return exact(int(digit[1]))
        self._enter()
        value = self._primary(mixed=False)
        self._depth -= 1
        return value

    def _one_degree(self) -> Exact:
        return self._work.multiply(exact(Fraction(1, 180)), symbol("pi"))

    def _multiplies_silently(self) -> bool:
        """Whether what follows is a factor, so that the two side by side are a product."""
        if tokens.IMPLICIT.match(self.text, self.position):
            return True
        if name := tokens.NAME.match(self.text, self.position):
            call = name[2] in FUNCTIONS or name[2] == "log"
            bracket = name[1] or self.text[name.end() : name.end() + 1] in ("(", "{", "_")
            return name[2] in CONSTANTS or bool(call and bracket)
        after = self.text[self.position - 1] in "!)"
        return after and bool(tokens.DIGIT.match(self.text, self.position))

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotExact("too deeply nested")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def _expect(
        self, pattern: re.Pattern[str], reason: str = "unbalanced brackets"
    ) -> re.Match[str]:
        match = self._take(pattern)
        if match is None:
            raise NotExact(reason)
        return match
