import json

import pytest

from training.rollout.trajectory import Status, Stop, ToolCall, Trajectory

TRAJECTORY = Trajectory(
    task="pool-3",
    prompt_ids=[5, 6],
    output_ids=[7, 8, 9],
    mask=[1, 0, 1],
    logprobs=[-0.1, 0.0, -1.2345678901234567],
    turns=2,
    calls=[ToolCall(1, "ok", 0.01, True), ToolCall(2, "refused", 0.0, False)],
    status=Status.VALID,
    label="1/2",
    reason="one final answer",
    stop=Stop.EOS,
    seed=2**63 - 1,
    text="Final Answer: ½\n",
)


def test_a_record_survives_json_exactly() -> None:
    line = json.dumps(TRAJECTORY.to_json())
    back = Trajectory.from_json(json.loads(line))
    assert back == TRAJECTORY
    assert isinstance(back.status, Status)
    assert isinstance(back.calls[0], ToolCall)


def test_refused_calls_do_not_count() -> None:
    assert TRAJECTORY.n_tool == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [({"status": "good"}, ValueError), ({"stop": "bored"}, ValueError), ({"extra": 1}, TypeError)],
)
def test_foreign_records_are_refused(change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Trajectory.from_json({**TRAJECTORY.to_json(), **change})
