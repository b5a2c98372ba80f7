"""Reading HumanEval programs out of responses, and the plain-value wire."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from training.benchmarks.code_check.wire import pack, unpack
from training.benchmarks.humaneval import read_program
from training.benchmarks.humaneval import test_program as program_with_tests
from training.benchmarks.schema import Question

PROMPT = (
    "from typing import List\n\n\ndef helper(x):\n    return x\n\n\n"
    'def add(a: int, b: int):\n    """Add."""\n'
)
GOOD = "```python\ndef add(a, b):\n    return a + b\n```"
TASK = Question(
    "HumanEval/x", PROMPT, "    return a + b\n", tests="def check(f):\n    assert f(1, 2) == 3\n",
    entry_point="add",
)  # fmt: skip


def result(response: str) -> Any:
    program = read_program(response, TASK)
    assert program is not None
    space: dict[str, Any] = {}
    exec(compile(program, "program", "exec"), space)
    assert space["helper"](1) == 1
    return space["add"](2, 3)


@pytest.mark.parametrize(
    "response",
    [
        "    return a + b\n",
        "return a + b",
        "    return a + b\n\n\ndef other():\n    pass\n\nprint(add(1, 2))\n",
        "    return a + b\n\nThis adds the numbers.",
        GOOD,
        "First a wrong one:\n```python\ndef add(a, b):\n    return 0\n```\nbetter:\n"
        f"{GOOD}\nand a test:\n```python\nassert True\n```",
        "```\ndef add(a, b):\n    return a + b",
        "```python\nreturn a + b\n```",
        "Sure.\ndef add(a, b):\n    return a + b\n\nIt works because of arithmetic.",
        f"<think>def add(a, b): return 0</think>{GOOD}",
        f"<python>print(2)</python>\n<output>2\n</output>\n{GOOD}",
        PROMPT + "    return a + b\n",
        f"```bash\npip install x\n```\n{GOOD}",
        f"```text\n2 3\n```\nand\n{GOOD}\n```text\n5\n```",
        "s = 0\n    for x in (a, b):\n        s += x\n    return s\n",
        "s = 0\n    for x in (a, b):\n        s += x\n    return s\n\nThis adds them.",
        "if a:\n        return a + b\n    return b\n",
        "s = 0\nfor x in (a, b):\n    s += x\nreturn s\n",
        "s = 0\nfor x in (a, b):\n    s += x\nreturn s\n\nThis adds the two.",
        "    s = a\n# the rest\n    return s + b\n",
        "```python\ndef plus(x, y):\n    return x + y\n```\nthen\n"
        "```python\ndef add(a, b):\n    return plus(a, b)\n```",
        f"```python\nassert add(1, 2) == 4\n```\nis false for\n{GOOD}",
        "1. Here:\n   ```python\n   def add(a, b):\n       return a + b\n   ```",
        "- ```python\n  def add(a, b):\n      return a + b\n  ```",
        "~~~python\ndef add(a, b):\n    return a + b\n~~~",
        "```python\ndef add(a, b):\n    return a + b```",
        "```python\n    return a + b\n```\nOutput:\n```\n5\n```",
        "    q = [a]\n    q.append(b)\n    return sum(q)\n",
        "    # Input: two numbers\n    return a + b\n",
        "def add(a, b):\n    return a + b\n\nTry it:\n```python\nprint(add(1, 2))\n```",
    ],
)
def test_reads_the_program(response: str) -> None:
    assert result(response) == 5


@pytest.mark.parametrize("response", ["", "Sure", "Sure\nyes", "I cannot solve it.", "# later"])
def test_nothing_is_no_program(response: str) -> None:
    assert read_program(response, TASK) is None
    assert read_program("<python>print(1)</python>", TASK) is None
    assert read_program("I cannot solve it.", TASK) is None
    assert read_program("It adds a and b.\nSo the result is their sum.", TASK) is None


def test_neither_side_of_the_prompt_shows_the_tests() -> None:
    assert TASK.tests is not None
    assert TASK.tests not in TASK.question
    program = program_with_tests(TASK, "def add(a, b): return 0", "token")
    runner = program.partition("'source'")[0]
    assert "assert f(1, 2) == 3" not in runner


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**80), 1.5, float("inf"), "ü\ud800", b"\x00", 1j, [1, (2, {"a": {3}})],
        frozenset({1}), {1: [2], (1, 2): None}, Fraction(1, 3), Decimal("0.10"),
    ],
)  # fmt: skip
def test_plain_values_keep_value_and_type(value: Any) -> None:
    back = unpack(pack(value))
    assert back == value
    assert type(back) is type(value)


def test_an_object_that_equals_everything_does_not_cross() -> None:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

    class AnyList(list[int]):
        def __eq__(self, other: object) -> bool:
            return True

    with pytest.raises(TypeError):
        pack(Anything())
    assert unpack(pack(AnyList([1]))) != [2]
