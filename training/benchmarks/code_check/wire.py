"""Plain values over a pipe: one JSON line a message, each value with its type.

Its text stands in front of both programs that run in the sandbox, so it is self-contained. Only
plain data crosses: an object that claims to equal everything arrives as what it holds, or not at
all.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import IO, Any

_DEPTH = 50


def pack(value: Any, depth: int = 0) -> Any:
    """A JSON form of plain data that keeps types; raises TypeError for anything else."""
    if depth > _DEPTH:
        raise TypeError("nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return ["int", format(int(value), "x")]
    if isinstance(value, float):
        return ["float", float(value).hex()]
    if isinstance(value, str):
        return ["str", "".join(value)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", list(value)]
    if isinstance(value, complex):
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, (Fraction, Decimal)):
        return [type(value).__name__, str(value)]
    kind: Any  # the plain type's own methods are used: a subclass's may tell another story
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [pack(item, depth + 1) for item in kind.__iter__(value)]]
    if isinstance(value, dict):
        pairs = dict.items(value)
        return ["dict", [[pack(k, depth + 1), pack(v, depth + 1)] for k, v in pairs]]
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return pack(value.item(), depth + 1)
    raise TypeError("not plain data: " + type(value).__name__)


def unpack(form: Any) -> Any:
    """The value of a `pack` form; raises ValueError, TypeError or KeyError for anything else."""
    if form is None or isinstance(form, bool):
        return form
    name, *rest = form
    if name == "int":
        return int(rest[0], 16)
    if name == "float":
        return float.fromhex(rest[0])
    if name == "str":
        return str(rest[0])
    if name == "bytes":
        return bytes(rest[0])
    if name == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if name == "dict":
        return {unpack(k): unpack(v) for k, v in rest[0]}
    if name in ("Fraction", "Decimal"):
        return {"Fraction": Fraction, "Decimal": Decimal}[name](rest[0])
    plain: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    return plain[name](unpack(item) for item in rest[0])


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Write one message."""
    stream.write(json.dumps(message).encode("ascii") + b"\n")
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; None when the other side is gone."""
    line = stream.readline()
    return json.loads(line) if line.endswith(b"\n") else None
