"""Reading JSON from standard input, strictly: every fault is one sentence that says where."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from flows.cli.errors import UserError

JsonObject = dict[str, object]


def read_text() -> str:
    """Return all of standard input. Raises UserError if it isn't UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 (byte {error.start}); convert it") from None


def read_object() -> JsonObject:
    """Return the one JSON object on standard input. Raises UserError for anything else."""
    text = read_text()
    if not text.strip():
        raise UserError("standard input is empty; give one JSON object")
    return parse_object(text, "standard input")


def read_objects() -> Iterator[tuple[str, JsonObject]]:
    """Yield ("line N", object) for every line that isn't blank. Raises UserError at a bad line."""
    # Not splitlines(): it also splits at separators that JSON strings may hold unescaped.
    for number, line in enumerate(read_text().split("\n"), start=1):
        if line.strip():
            yield f"line {number}", parse_object(line, f"line {number}")


def parse_object(text: str, where: str) -> JsonObject:
    """Parse one JSON object; numbers keep their exact spelling, integers as int, others Decimal."""
    try:
        value = json.loads(
            text,
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_no_constant,
            object_pairs_hook=_no_repeats,
        )
    except RecursionError:
        raise UserError(f"{where}: nested too deeply for JSON input") from None
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, got {kind(value)}")
    return value


def check_keys(
    value: JsonObject, where: str, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Raise UserError for a missing or an unknown key."""
    known = [*required, *optional]
    for key in value:
        if key not in known:
            raise UserError(f"{where}: unknown key {key!r}; known keys are {', '.join(known)}")
    for key in required:
        if key not in value:
            raise UserError(f"{where}: the key {key!r} is missing")


def as_list(value: object, where: str) -> list[object]:
    """Return ``value`` if it is a list; raises UserError otherwise."""
    if not isinstance(value, list):
        raise UserError(f"{where}: expected a list, got {kind(value)}")
    return value


def as_text(value: object, where: str) -> str:
    """Return ``value`` if it is a string; raises UserError otherwise."""
    if not isinstance(value, str):
        raise UserError(f"{where}: expected a string, got {kind(value)}")
    return value


def as_answer(value: object, where: str) -> str | None:
    """Return an answer's spelling, or None for null. A JSON number is read as it is written."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{where}: expected an answer (a string) or null, got {kind(value)}")


def as_count(value: object, where: str) -> int:
    """Return ``value`` if it is an integer of at least 0; raises UserError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where}: expected a count (an integer from 0), got {shown(value)}")
    return value


def kind(value: object) -> str:
    """Name a JSON value's type in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "an object", list: "a list", str: "a string", int: "a number"}
    return names.get(type(value), "a number")


def shown(value: object) -> str:
    """Spell a value for a message, shortened; containers by their type alone."""
    if isinstance(value, (dict, list)):
        return kind(value)
    text = str(value) if isinstance(value, Decimal) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"the exponent of {digits[:40]} is out of range") from None


def _integer(digits: str) -> int | Decimal:
    # int() refuses more than 4300 digits, which an answer may have; a Decimal keeps them all.
    return int(digits) if len(digits) <= 4000 else Decimal(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice")
    return value
