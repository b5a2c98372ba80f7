"""Prompts of both agents, from template files that users can replace (section 2 of docs/method.md).

A template is plain text; ``{problem}`` and ``{max_code_chars}`` are filled in, all other braces
stay as they are.
"""

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from training.errors import ConfigError

TEMPLATES = Path(__file__).parent / "templates"
NAMES = ("curriculum", "executor", "executor_without_tool")


def template_path(name: str) -> Path:
    """File of a template: a shipped one by its name, or the path itself.

    Raises ConfigError when there is no such file.
    """
    path = TEMPLATES / f"{name}.txt" if "/" not in name and "." not in name else Path(name)
    if not path.is_file():
        raise ConfigError(f"template '{name}' is not a file and not one of {TEMPLATES.name}/*.txt")
    return path.resolve()


class PromptBook:
    """Token ids of prompts for one tokenizer.

    ``tokenizer`` is a transformers tokenizer; style ``chat`` wraps the text in its chat template as
    one user message, ``plain`` leaves it as it is.
    """

    def __init__(
        self,
        tokenizer: Any,
        curriculum: Path,
        executor: Path,
        style: Literal["plain", "chat"],
        max_code_chars: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._style = style
        self._curriculum = curriculum.read_text(encoding="utf-8")
        self._executor = executor.read_text(encoding="utf-8").replace(
            "{max_code_chars}", str(max_code_chars)
        )
        if "{problem}" not in self._executor:
            raise ConfigError(f"template {executor.name} has no {{problem}} to fill in")
        if style == "chat" and not getattr(tokenizer, "chat_template", None):
            raise ConfigError("prompts.style is 'chat', but the tokenizer has no chat template")

    @cached_property
    def curriculum(self) -> tuple[int, ...]:
        """Ids of the one prompt from which every candidate task is sampled."""
        return self.encode(self._curriculum)

    def executor(self, problem: str) -> tuple[int, ...]:
        """Ids of the Executor's prompt for a problem text."""
        return self.encode(self._executor.replace("{problem}", problem))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a prompt text in the book's style."""
        if self._style == "chat":
            message = [{"role": "user", "content": text.rstrip("\n")}]
            text = self._tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True
            )
            return tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return tuple(self._tokenizer.encode(text))
