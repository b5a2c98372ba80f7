"""HumanEval: read the function out of a response and run the problem's tests in the sandbox."""

from __future__ import annotations

import ast
import re
import secrets
import textwrap
from pathlib import Path
from typing import Protocol

from training.benchmarks.response_text import before_next_question, without_thinking
from training.benchmarks.schema import Grade, Question
from training.sandbox.verdict import CallResult, Verdict

_HERE = Path(__file__).parent / "code_check"
_TOOL = re.compile(r"<python>.*?(?:</python>|\Z)|<output>.*?(?:</output>|\Z)", re.DOTALL)
_FENCE = re.compile(
    r"(?P<ticks>(?<!`)`{3,}+|^[ \t]*+~{3,}+)[ \t]*(?P<tag>[^\n`]*)\n(?P<body>.*?)"
    r"(?:^[ \t]*(?P=ticks)(?![\w{])|(?P=ticks)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PYTHON_TAG = re.compile(r"\W*(?:python3?|py3?)?(?![\w.+-])", re.IGNORECASE)
_LONGEST_BODY = 400
"""Lines that a body without indent is looked for in; more would only cost time on prose."""
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

    The last fenced block that defines the function counts, behind the definitions of the blocks
    before it, which it may use; else a function in the running text, else the response is taken as
    the continuation of the prompt, up to where it leaves the function. Imports and helpers that
    the prompt gives stand before it. Text that is no program in any of these ways is none.
    """
    text = _TOOL.sub("\n", without_thinking(response))
    preamble, header = _split_prompt(question)
    defines = re.compile(rf"^(?:async\s+)?def\s+{re.escape(question.entry_point or '')}\b", re.M)
    blocks = _python_blocks(text)
    for place in reversed(range(len(blocks))):
        if defines.search(blocks[place][1]):
            helpers = [code for _, code in blocks[:place] if _defines_only_helpers(code, question)]
            return "\n".join([preamble, *helpers, blocks[place][1], ""])
    if defines.search(text):
        start = _TOP.search(text)
        assert start is not None
        return f"{preamble}\n{_longest_program(text[start.start() :])}\n"
    if blocks:
        _, code = ([block for block in blocks if block[0]] or blocks)[-1]
        return f"{preamble}\n{header}{_indented(code)}\n"
    # Indented text ends where it leaves the function; `# Input: …` and `q.append` are no questions.
    lines = text.strip("\n")
    body = _body(lines if lines[:1].isspace() else before_next_question(text, 0), header)
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


def _python_blocks(text: str) -> list[tuple[str, str]]:
    """Tag and code of the fenced blocks that may be Python, without the indent of a list item.

    Fences of every tag are matched, so that no closing fence is taken for an opening one.
    """
    return [
        (match["tag"].strip(), textwrap.dedent(match["body"]).rstrip())
        for match in _FENCE.finditer(text)
        if _PYTHON_TAG.match(match["tag"])
    ]


def _defines_only_helpers(block: str, question: Question) -> bool:
    """Whether a block is a program of imports, definitions and constants, without the function.

    Examples of use and tests are left out: running them could fail what the function passes.
    """
    try:
        body = ast.parse(block).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in body if isinstance(node, definitions)}
    known = (*definitions, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    return (
        bool(names)
        and question.entry_point not in names
        and all(isinstance(node, known) for node in body)
    )


def _body(text: str, header: str) -> str:
    """The function's body that a response begins with, or nothing where it is no code.

    A body may have lost the indent of its first line, or of all of them. What is read must compile
    below the header, unless it is indented as code: that is a program with an error.
    """
    text = text.strip("\n")
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line[0].isspace() and line[0] != "#" and lines:
            break
        lines.append(line)
    if text[:1].isspace():
        return "\n".join(lines)
    leading = _indented("\n".join(lines))
    every = text.splitlines()[:_LONGEST_BODY]
    for end in range(len(every), len(lines), -1):
        body = _indented("\n".join(every[:end]))
        if _is_body(body, header):
            return body
    return leading if _is_body(leading, header) else ""


def _indented(code: str) -> str:
    """The code as a function body: indented by four where it is not.

    Where only the first line has lost its indent, that line alone gets the next one's back.
    """
    lines = code.splitlines()
    filled = [line for line in lines if line.strip()]
    if not filled or filled[0][:1].isspace():
        return code
    whole = "\n".join(f"    {line}" if line.strip() else line for line in lines)
    rest = [line for line in filled[1:] if not line[:1].isspace()]
    if len(filled) > 1 and not rest and not _compiles(f"def f():\n{whole}"):
        indents = (line[: len(line) - len(line.lstrip())] for line in filled[1:])
        return min(indents, key=len) + code.lstrip("\n")
    return whole


def _is_body(body: str, header: str) -> bool:
    """Whether the text compiles below the header and does something: the word `Sure` does not."""
    if not (_compiles(header + body) and _compiles(f"def f():\n{body}")):
        return False
    (function,) = ast.parse(f"def f():\n{body}").body
    return isinstance(function, ast.FunctionDef) and not all(
        isinstance(statement, ast.Expr) for statement in function.body
    )


def _compiles(program: str) -> bool:
    try:
        compile(program, "response", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _longest_program(text: str) -> str:
    """The longest run of leading lines that is a program: prose after the code is left out."""
    lines = text.splitlines()
    for end in range(len(lines), 0, -1):
        candidate = "\n".join(lines[:end])
        if _compiles(candidate):
            return candidate
    return text


def _failure(result: CallResult) -> str:
    if result.verdict is not Verdict.OK and result.verdict is not Verdict.ERROR:
        return f"the tests ended with {result.verdict.value}"
    last = result.stderr.strip().splitlines()[-1:] or ["no test result"]
    return f"the tests failed: {last[0][:200]}"
