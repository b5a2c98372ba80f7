"""One way to turn names and numbers into a seed, so that no draw depends on consumed RNG state.

Every random draw of a stage is seeded by `derive_seed(seed, stage, iteration, step, …)`. A run that
is resumed in the middle therefore draws exactly what an uninterrupted run would have drawn.
"""

import hashlib

_BITS = 63  # Prefect and SQL integers are signed 64 bit


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**63) that depends on every part, its type and its position.

    Raises `TypeError` for a part that is neither an integer nor a string: floats and other objects
    have several spellings of one value, and two spellings would silently be two streams.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | str):
            raise TypeError(f"a seed is derived from integers and strings, got {part!r}")
        text = f"{'i' if isinstance(part, int) else 's'}{part}".encode()
        digest.update(f"{len(text)}:".encode() + text)
    return int.from_bytes(digest.digest()[:8], "big") >> (64 - _BITS)
