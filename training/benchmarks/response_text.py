r"""What of a response counts as the model's own answer text.

Thinking blocks, code, tool output and special tokens are never read for an answer; a base model
that runs on into a further question it invented is cut where that question starts.
"""

from __future__ import annotations

import re

_END_TOKEN = re.compile(r"<\|?(?:im_end|im_start|endoftext|eot_id|end_of_text|eos|/s)\|?>|</s>")
_THINK_END = "</think>"
_PYTHON = re.compile(r"<python>.*?(?:</python>|\Z)|<output>.*?(?:</output>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```(?P<tag>[\w+-]*)[ \t]*\n(?P<body>.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_PROSE_TAGS = {"", "text", "txt", "latex", "tex", "math", "markdown", "md", "plaintext"}
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")
_ASKS = r"(?:(?:next|new)\s+)?(?:question|problem|exercise|q|human|user|instruction|input)"
_NEXT_QUESTION = re.compile(
    rf"^[ \t>#*_]*{_ASKS}\s*\d*[ \t*_]*[:.)]"  # `Question:`, `Exercise 3.`
    rf"|^[ \t>*_]*\[{_ASKS}[ \t]*\d*\]"
    rf"|^[ \t]*\#{{2,6}}[ \t]*{_ASKS}[ \t]*\d*[ \t*_]*$",  # a heading; `# input` is code
    re.IGNORECASE | re.MULTILINE,
)


def without_thinking(response: str) -> str:
    """The response up to its first special token, without thinking."""
    token = _END_TOKEN.search(response)
    text = response[: token.start()] if token else response
    if _THINK_END in text:
        text = text.rpartition(_THINK_END)[2]
    return text.partition("<think>")[0]


def own_words(response: str) -> str:
    """The response without thinking, code, tool output, calculator marks and special tokens."""
    text = _PYTHON.sub("\n", without_thinking(response))
    text = _FENCE.sub(_prose_only, text)
    return _CALCULATOR.sub("", text)


def before_next_question(text: str, answered: int) -> str:
    """`text` cut at the first line after position `answered` that opens another question."""
    match = _NEXT_QUESTION.search(text, answered)
    return text[: match.start()] if match else text


def _prose_only(match: re.Match[str]) -> str:
    return f"\n{match['body']}\n" if match["tag"].lower() in _PROSE_TAGS else "\n"
