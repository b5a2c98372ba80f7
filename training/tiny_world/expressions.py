"""Exact integer expressions: what the tool prints for the code in demonstrations.

Only what the grammar writes is understood, so that no text is ever executed here.
"""

import ast
import math
import operator
from collections.abc import Callable

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def code_for(expression: str) -> str:
    """The short Python program that prints the value of an expression."""
    if "gcd(" in expression:
        return f"from math import gcd\nprint({expression})"
    return f"print({expression})"


def evaluate(expression: str) -> str | None:
    """What ``code_for(expression)`` prints, or None where Python would divide by zero.

    Raises:
        ValueError: the expression uses something outside the grammar.
    """
    try:
        return str(_value(ast.parse(expression, mode="eval").body))
    except ZeroDivisionError:
        return None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id="gcd"), args=[first, second]):
            return math.gcd(_value(first), _value(second))
        case ast.Call(
            func=ast.Name(id="sum"),
            args=[ast.Call(func=ast.Name(id="range"), args=[start, stop, step])],
        ):
            return _sum_range(_value(start), _value(stop), _value(step))
    raise ValueError(f"the tiny world cannot evaluate {ast.unparse(node)!r}")


def _sum_range(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise ZeroDivisionError("a range needs a step other than 0")
    count = len(range(start, stop, step))
    return count * start + step * count * (count - 1) // 2
