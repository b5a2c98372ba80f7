"""Typed failures of a stage: the ``kind`` in failure.json, so that a retry knows what to do."""

from typing import ClassVar, Literal

Kind = Literal["config", "infra", "out_of_memory", "numeric", "interrupted", "bug"]


class StageError(Exception):
    """Base of the failures a stage can name; the message is one sentence for a person."""

    kind: ClassVar[Kind] = "bug"
    again: ClassVar[bool] = True
    """Whether the same may go well when it is tried again at once."""


class ConfigError(StageError, ValueError):
    """A mistake in the configuration, told in one sentence that names the value and the remedy."""

    kind = "config"


class InfraError(StageError):
    """Our own machinery failed (sandbox, engine, disk): never a reward, safe to retry."""

    kind = "infra"


class TakenError(InfraError):
    """Another process computes the stage; what lies in its folder is that process's."""


class DiskFullError(InfraError):
    """The disk has no room for what has to be written; a person has to make some."""

    again = False


class NumericError(StageError, ValueError):
    """A loss, reward or log-probability stopped being finite, or training collapsed."""

    kind = "numeric"


class OutOfMemoryError(StageError):
    """Memory ran out; retrying without another batch size or length will not help."""

    kind = "out_of_memory"


class Interrupted(KeyboardInterrupt):
    """The stage was asked to stop; it resumes from its last checkpoint.

    No StageError: a signal handler raises it wherever the process is, and it must pass every
    ``except Exception`` there, and event loops, which drop what comes up between two tasks.
    """
