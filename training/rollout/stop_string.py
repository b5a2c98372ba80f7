"""Finding the token that completes a stop string.

The string may be one token, several, or end inside a token that goes on after it, so it is looked
for in decoded text; only tokens whose piece holds the string's last character are decoded at all.
"""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

_EXTRA_TOKENS = 8  # pieces that decode to nothing, or to a part of a character


class StopString:
    """Tells whether the last of some generated tokens completes `text`.

    `candidates[token]` is False for tokens, of the model's `vocabulary`, that cannot.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, text: str, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._text = text
        self._window = len(text) + _EXTRA_TOKENS
        self.candidates = np.zeros(vocabulary, dtype=bool)
        for piece, token in tokenizer.get_vocab().items():
            if token < vocabulary:
                self.candidates[token] = text[-1] in piece

    def completed_by_last(self, turn_ids: Sequence[int]) -> bool:
        """Whether the string is complete at the last of the turn's tokens, and was not before."""
        tail = list(turn_ids[-self._window :])
        end = self._decode(tail).rfind(self._text) + len(self._text)
        return end >= len(self._text) and end > len(self._decode(tail[:-1]))

    def _decode(self, ids: list[int]) -> str:
        return generated_text(self._tokenizer, ids)


def generated_text(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    """Text of sampled tokens as the model wrote it: special tokens shown, nothing cleaned up."""
    return tokenizer.backend_tokenizer.decode(list(ids), skip_special_tokens=False)
