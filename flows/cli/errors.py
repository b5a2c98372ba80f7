"""The one exception the command line shows as a sentence instead of a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right: the message names the value and the remedy."""
