r"""BIG-Bench Extra Hard by the matching rules its authors publish with it (Kazemi et al., 2025).

Both texts are lower-cased and lose the blank after commas. The prediction is what follows the
last "the answer is", without LaTeX wrapping, bold marks and a final full stop, up to the end of its
line. They match when they are the same text, the same letter with and without brackets, the same
number, or differ only by apostrophes, one pair of square brackets or a final question mark.
A `Final Answer:` line, which our prompt asks for, is read before "the answer is"; a heading that
says no more than "Final Answer" or "Answer" stands for such a line or such a sentence.
"""

from __future__ import annotations

import re

from training.benchmarks.response_text import own_words
from training.benchmarks.schema import Grade, Question

_FINAL_LINE = re.compile(
    r"^[ \t>#*_`]*final[ \t]+answer(?:[\s*_`]*[:：]|[ \t*_`]*\n)[\s*_`]*(.+)$",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_IS = re.compile(
    r"\bthe\s+(?:final\s+)?answer\s+is\s*[:：]?\s*"
    r"|^[ \t>]*(?:#+|[*_]{2})[ \t*_]*answer[ \t*_]*(?:[:：][ \t*_]*)?\n[\s*_`]*",
    re.IGNORECASE | re.MULTILINE,
)
_WRAPPERS = ("boxed{", "text{", "texttt{")


def grade_bbeh(question: Question, response: str) -> Grade:
    """Whether the response gives the key by BBEH's own rules."""
    stated, how = _stated(own_words(response))
    if stated is None:
        return Grade.unparsed(how)
    prediction, key = normal_prediction(stated), normal_key(question.answer)
    equal = matches(prediction, key)
    return Grade(prediction, equal, f"{how}, {'a match' if equal else 'no match'} by BBEH's rules")


def _stated(text: str) -> tuple[str | None, str]:
    text = text.strip()
    finals = _FINAL_LINE.findall(text)
    if finals:
        if len({normal_prediction(answer) for answer in finals}) > 1:
            return None, "two different final answers"
        return finals[-1], "final answer line"
    sentences = list(_ANSWER_IS.finditer(text))
    if sentences and text[sentences[-1].end() :].strip():
        return text[sentences[-1].end() :], "answer sentence"
    first_line = text.partition("\n")[0].strip()
    if not first_line:
        return None, "the response is empty"
    if len(text.splitlines()) > 1 and len(first_line) > 200:
        return None, "no answer is stated"
    return first_line, "first line"


def normal_prediction(answer: str) -> str:
    """A stated answer in the form that is compared."""
    answer = answer.strip().removesuffix(".")
    if len(answer) > 1 and answer.startswith("$") and answer.endswith("$"):
        answer = answer[1:-1]
    for wrapper in _WRAPPERS:
        if wrapper in answer and answer.endswith("}"):
            answer = answer[:-1].split(wrapper)[1]
    answer = answer.lower().replace(", ", ",").replace("**", "")
    return answer.partition("\n")[0].removesuffix(".")


def normal_key(key: str) -> str:
    """A key in the form that is compared."""
    return key.strip().lower().replace(", ", ",")


def matches(prediction: str, key: str) -> bool:
    """The published comparison of two normal forms."""
    if prediction == key:
        return True
    for one, other in ((prediction, key), (key, prediction)):
        if len(one) == 3 and one[0] == "(" and one[2] == ")":
            return one[1] == other
    try:
        if float(prediction) == float(key):
            return True
    except ValueError:
        pass
    return (
        prediction.replace("'", "") == key.replace("'", "")
        or prediction == f"[{key}]"
        or key == f"[{prediction}]"
        or (prediction.endswith("?") and prediction[:-1] == key)
    )
