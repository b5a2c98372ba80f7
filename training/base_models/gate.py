"""The base gate: a base too weak to agree on anything right would be trained on its own noise."""

from training.errors import StageError


class BaseGateError(StageError):
    """The base model is no ground to start from."""

    kind = "config"


def base_gate(
    mean_at_8: float,
    top_answer_share: float,
    *,
    min_mean_at_8: float = 0.2,
    max_top_answer_share: float = 0.5,
) -> None:
    """Let a base model pass whose mean@8 is high enough and that has no constant answer.

    Both numbers are fractions: mean@8 over the evaluation problems, and the share of greedy
    responses that give the most frequent answer.

    Raises:
        BaseGateError: the model must not be trained; the message says which number is why.
    """
    if not mean_at_8 >= min_mean_at_8:  # also refuses NaN
        raise BaseGateError(
            f"the base model solves too little to learn from its own votes: mean@8 is "
            f"{mean_at_8:.3f}, needed is {min_mean_at_8:g}; warm-start it longer, take a stronger "
            f"model or easier problems"
        )
    if not top_answer_share <= max_top_answer_share:
        raise BaseGateError(
            f"the base model gives one and the same answer to {top_answer_share:.0%} of different "
            f"problems (at most {max_top_answer_share:.0%} are allowed); take another model or "
            f"check its prompt template"
        )
