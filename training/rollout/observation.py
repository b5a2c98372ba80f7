"""Observations as the model sees them: a frame of the protocol around text that is only text."""

from transformers import PreTrainedTokenizerFast

OUTPUT_OPEN = "\n<output>"
OUTPUT_CLOSE = "</output>\n"
OBSERVATION = OUTPUT_OPEN + "{stdout}" + OUTPUT_CLOSE
_CUT = "\n[... output cut here ...]\n"


class ObservationEncoder:
    """Turns what a call printed into token ids, at most `max_tokens` of them.

    Longer text keeps both ends around a marker.  Control tokens that a program prints are encoded
    as ordinary text, so that its output cannot end a text or pose as the protocol's frame.

    Raises `ValueError` when `max_tokens` does not even hold frame and marker.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._open = self._encode(OUTPUT_OPEN)
        self._close = self._encode(OUTPUT_CLOSE)
        self._cut = self._encode(_CUT)
        frame = len(self._open) + len(self._close)
        self._room = max_tokens - frame
        if self._room <= len(self._cut):
            raise ValueError(
                f"max_observation_tokens is {max_tokens}, and the observation's frame and cut "
                f"marker alone take {frame + len(self._cut)}: raise it"
            )

    def encode(self, text: str) -> list[int]:
        """Ids of the framed text; its last line feed is left out."""
        body = self._encode(text.removesuffix("\n"), plain=True)
        if len(body) > self._room:
            kept = self._room - len(self._cut)
            head = (kept + 1) // 2
            body = [*body[:head], *self._cut, *body[len(body) - (kept - head) :]]
        return [*self._open, *body, *self._close]

    def _encode(self, text: str, plain: bool = False) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=plain)
