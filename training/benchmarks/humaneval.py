"""HumanEval: read the function out of a response and run the problem's tests in the sandbox."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Protocol

from training.benchmarks.response_text import before_next_question, without_thinking
from training.benchmarks.schema import Grade, Question
from training.sandbox.verdict import CallResult, Verdict

_HERE = Path(__file__).parent / "code_check"
_TOOL = re.compile(r"<python>.*?(?:</python>|\Z)|<output>.*?(?:</output>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_TOP = re.compile(r"^(?:from|import|def|class|@|async\s+def)\b|^@", re.MULTILINE)


class CodeRunner(Protocol):
    """What grading needs of the sandbox."""

    async def run(self, code: str) -> CallResult: ...


async def grade_code(question: Question, response: str, sandbox: CodeRunner) -> Grade:
    """Whether the response's function passes the problem's tests in the sandbox.

    `prediction` is the program that was tested. A failure of the sandbox is infra.
    """
    program = read_program(response, question)
    if program is None:
        return Grade.unparsed("no code is stated")
    token = secrets.token_hex(16)
    result = await sandbox.run(test_program(question, program, token))
    if result.verdict is Verdict.INFRA:
        return Grade.infra("the sandbox failed", program)
    passed = result.verdict is Verdict.OK and result.stdout.splitlines()[-1:] == [token]
    if passed:
        return Grade(program, True, "all tests ran and passed")
    return Grade(program, False, _failure(result))


def read_program(response: str, question: Question) -> str | None:
    """The complete program a response stands for, or None when it holds no code.

    The last fenced block that defines the function counts, else a function in the running text,
    else the response is taken as the continuation of the prompt, up to where it leaves the
    function. Imports and helpers that the prompt gives stand before it.
    """
    text = _TOOL.sub("\n", without_thinking(response))
    preamble, header = _split_prompt(question)
    defines = re.compile(rf"^(?:async\s+)?def\s+{re.escape(question.entry_point or '')}\b", re.M)
    blocks: list[str] = _FENCE.findall(text)
    for block in reversed(blocks):
        if defines.search(block):
            return f"{preamble}\n{block}\n"
    if blocks:
        return f"{preamble}\n{header}{_indented(blocks[-1])}\n"
    if defines.search(text):
        start = _TOP.search(text)
        assert start is not None
        return f"{preamble}\n{_longest_program(text[start.start() :])}\n"
    body = _body(before_next_question(text, 0))
    return f"{preamble}\n{header}{body}\n" if body.strip() else None


def test_program(question: Question, program: str, token: str) -> str:
    """The text that the sandbox runs; it prints `token` last if the tests passed."""
    task = {
        "runner": f"{_source('wire.py', 'candidate.py')}\nserve()\n",
        "source": program,
        "entry_point": question.entry_point,
        "prompt": question.question,
        "tests": question.tests,
        "token": token,
    }
    return f"{_source('wire.py', 'harness.py')}\nmain({task!r})\n"


def _source(*files: str) -> str:
    """The texts of files of `code_check` as one program: what they import stands before them."""
    texts = [(_HERE / file).read_text(encoding="utf-8") for file in files]
    lines = "\n".join(texts).splitlines()
    kept = [ln for ln in lines if not ln.startswith(("from training.", "from __future__"))]
    return "\n".join(["from __future__ import annotations", *kept])


def _split_prompt(question: Question) -> tuple[str, str]:
    """What the prompt gives before the function, and the function's header with docstring."""
    name = re.escape(question.entry_point or "")
    match = re.search(rf"^(?:async\s+)?def\s+{name}\b", question.question, re.MULTILINE)
    if match is None:
        return "", question.question
    return question.question[: match.start()], question.question[match.start() :]


def _body(text: str) -> str:
    """The indented lines a response begins with: the function's body."""
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        if line.strip() and not line[0].isspace() and lines:
            break
        lines.append(line)
    return _indented("\n".join(lines))


def _indented(code: str) -> str:
    """The code as a function body: indented by four where it is not."""
    first = next((line for line in code.splitlines() if line.strip()), "")
    if first[:1].isspace():
        return code
    return "\n".join(f"    {line}" if line.strip() else line for line in code.splitlines())


def _longest_program(text: str) -> str:
    """The longest run of leading lines that is a program: prose after the code is left out."""
    lines = text.splitlines()
    for end in range(len(lines), 0, -1):
        candidate = "\n".join(lines[:end])
        try:
            compile(candidate, "response", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return candidate
    return text


def _failure(result: CallResult) -> str:
    if result.verdict is not Verdict.OK and result.verdict is not Verdict.ERROR:
        return f"the tests ended with {result.verdict.value}"
    last = result.stderr.strip().splitlines()[-1:] or ["no test result"]
    return f"the tests failed: {last[0][:200]}"
