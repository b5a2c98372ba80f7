"""`python -m sandbox_image`: start the supervisor."""

import os
import sys
from collections.abc import Callable


def _ignore(**handlers: Callable[[], object]) -> None:
    """Stand in for `os.register_at_fork` while the libraries load.

    What they would do after each fork is for processes with threads, or seeds generators that
    are seeded anyway; it would touch 140 pages a call.
    """


_register, os.register_at_fork = os.register_at_fork, _ignore  # type: ignore[assignment]

from sandbox_image.preload import preload  # noqa: E402
from sandbox_image.supervisor import main  # noqa: E402

versions = preload()
os.register_at_fork = _register
sys.exit(main(versions))
