"""The base gate as the experiment applies it to iteration 0."""

import pytest

from flows.experiment import pass_gate
from tasks.summary import iteration_row
from training.base_models.gate import BaseGateError
from training.config_load import load_config, parse_assignments


def outcome(**metrics: float) -> dict[str, object]:
    seconds = {"seconds": 1.0, "cost_seconds": 1.0}
    return {"stage": "evaluation", "metrics": metrics, "identity": "x", **seconds}


def test_an_evaluation_without_samples_passes_where_no_gate_is_set() -> None:
    config = load_config("tiny", "base", parse_assignments(["evaluation.samples=0"]))
    row = iteration_row(0, [outcome(greedy=0.1)], samples=0)
    assert "mean_at_0" not in row
    with pytest.raises(BaseGateError, match=r"needed is 0\.2"):
        pass_gate(config, row)
    pass_gate(load_config("tiny", "base", {"gate": {"min_mean_at_k": 0.0}}), row)


def test_a_weak_or_constant_base_is_held() -> None:
    config = load_config("tiny")
    pass_gate(config, iteration_row(0, [outcome(mean_at_8=0.3, top_answer_share=0.1)]))
    for metrics in ({"mean_at_8": 0.1}, {"mean_at_8": 0.3, "top_answer_share": 0.9}):
        with pytest.raises(BaseGateError):
            pass_gate(config, iteration_row(0, [outcome(**metrics)]))
