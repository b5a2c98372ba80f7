"""One way to grade a response, whatever the benchmark.

`Grader` owns the machinery (math-verify's processes, the sandbox) and picks the rules by the
answer's kind. Grading is asynchronous, so that it runs beside generation; the symbolic judge works
in threads that only wait for its processes.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import TracebackType

from training.benchmarks.bbeh import grade_bbeh
from training.benchmarks.choice import grade_choice
from training.benchmarks.humaneval import CodeRunner, grade_code
from training.benchmarks.math_equal import EXACT, Judge, Policy
from training.benchmarks.math_reading import Reading, boxed, read_any, read_stated
from training.benchmarks.schema import AnswerKind, Grade, GradeStatus, Question
from training.benchmarks.verify_pool import GraderError, VerifyPool

_LETTER = re.compile(r"\(?[A-Z]\)?")
_NUMPY_FUNCTION = re.compile(
    r"\b(?:np|numpy)\.(?=(?:(?:arc)?(?:sin|cos|tan)|sinh|cosh|tanh|exp)\()"
)
MINERVA_TOLERANCE = Fraction(1, 100)  # rounded course answers: the published threshold of 1 %


class Grader:
    """Grades responses; an asynchronous context manager.

    `workers` processes run math-verify. `sandbox` is needed for code alone. `generic` reads bare
    answers and running texts too: for answers made elsewhere, never for a benchmark's score.
    """

    def __init__(
        self, workers: int = 1, sandbox: CodeRunner | None = None, generic: bool = False
    ) -> None:
        self._pool = VerifyPool(workers)
        self._judge = Judge(self._pool)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._sandbox = sandbox
        self._generic = generic

    async def __aenter__(self) -> Grader:
        self._pool.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and math-verify's processes."""
        self._threads.shutdown(cancel_futures=True)
        self._pool.close()

    async def grade(self, kind: AnswerKind, question: Question, response: str) -> Grade:
        """Grade one response to a question whose answers are of `kind`.

        Raises:
            ValueError: code is to be graded and there is no sandbox.
        """
        if kind is AnswerKind.CODE:
            if self._sandbox is None:
                raise ValueError("grading code needs the sandbox, and none was given")
            return await grade_code(question, response, self._sandbox)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.grade_text, kind, question, response)

    def grade_text(self, kind: AnswerKind, question: Question, response: str) -> Grade:
        """Grade a response that is no code; blocks while math-verify works."""
        if kind is AnswerKind.BBEH:
            return grade_bbeh(question, response)
        if kind is AnswerKind.CHOICE and (question.choices or _LETTER.fullmatch(question.answer)):
            return grade_choice(question, response)
        try:
            return grade_math(
                question,
                response,
                self._judge,
                policy(kind, question),
                read_any(response) if self._generic else read_stated(response),
            )
        except GraderError as error:
            return Grade.infra(str(error))


def policy(kind: AnswerKind, question: Question) -> Policy:
    """How exact a question means its numbers."""
    if kind is AnswerKind.MINERVA:
        return Policy(relative=MINERVA_TOLERANCE)
    if question.tolerance is not None:
        return Policy(absolute=question.tolerance)
    return EXACT


def grade_math(
    question: Question, response: str, judge: Judge, rule: Policy, reading: Reading
) -> Grade:
    """Compare the answer read from a response with the key.

    Raises:
        GraderError: the symbolic judge's processes failed.
    """
    if reading.answer is None:
        return Grade.unparsed(reading.how)
    key = boxed(question.answer) or question.answer
    verdict = judge.judge(_as_mathematics(key), _as_mathematics(reading.answer), rule)
    return Grade(
        reading.answer,
        verdict.equal,
        f"{reading.how}; {verdict.reason}",
        GradeStatus.GRADED,
        verdict.key_equal,
        verdict.verify_equal,
        undecided=verdict.limit_hit,
    )


def _as_mathematics(answer: str) -> str:
    """Functions spelled as NumPy's, as in a key of Minerva's, in LaTeX: `np.arcsin(x)`."""
    return _NUMPY_FUNCTION.sub(r"\\", answer)
