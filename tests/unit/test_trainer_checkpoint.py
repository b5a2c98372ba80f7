import logging
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from training.trainers.step_log import StepLog
from training.trainers.torch.checkpoint import Checkpoints


def trained(seed: int, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        advance(model, optimiser)
    return model, optimiser


def advance(model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    model(torch.ones(3)).pow(2).sum().backward()
    optimiser.step()


def test_a_restored_model_goes_on_exactly_as_the_saved_one(tmp_path: Path) -> None:
    model, optimiser = trained(0)
    Checkpoints(tmp_path).save(2, model, optimiser)
    other, other_optimiser = trained(1)
    assert Checkpoints(tmp_path).restore(other, other_optimiser) == 2
    advance(model, optimiser)
    advance(other, other_optimiser)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_all_three_generators_are_restored(tmp_path: Path) -> None:
    model, optimiser = trained(0)
    draws()  # leaves cached second normals, which are state too
    Checkpoints(tmp_path).save(1, model, optimiser)
    expected = draws()
    draws()
    Checkpoints(tmp_path).restore(model, optimiser)
    assert draws() == expected


def draws() -> list[float]:
    return [random.gauss(0, 1), float(np.random.standard_normal()), float(torch.rand(()))]


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (4, 8, 12):
        checkpoints.save(step, *trained(step))
    assert checkpoints.steps() == [12, 8]


def test_nothing_saved_restores_nothing(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent").restore(*trained(0)) == 0


@pytest.mark.parametrize("damage", ["flip", "truncate", "no state", "no manifest", "bad manifest"])
def test_a_damaged_checkpoint_is_passed_over_loudly(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, *trained(4))
    checkpoints.save(8, *trained(8))
    state, manifest = tmp_path / "step_8/state.pt", tmp_path / "step_8/manifest.json"
    match damage:
        case "flip":
            data = bytearray(state.read_bytes())
            data[len(data) // 2] ^= 1
            state.write_bytes(data)
        case "truncate":
            state.write_bytes(state.read_bytes()[:-1])
        case "no state":
            state.unlink()
        case "no manifest":
            manifest.unlink()
        case "bad manifest":
            manifest.write_text("{")
    model, optimiser = trained(0)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.restore(model, optimiser) == 4
    assert "step_8" in caplog.text
    for mine, theirs in zip(model.parameters(), trained(4)[0].parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_an_unfinished_write_is_no_checkpoint_and_goes_with_the_next(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "step_12.partial").mkdir()
    (tmp_path / "step_12.partial" / "state.pt").write_bytes(b"half")
    assert checkpoints.restore(*trained(0)) == 0
    checkpoints.save(4, *trained(4))
    assert [path.name for path in tmp_path.iterdir()] == ["step_4"]


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, *trained(0))
    checkpoints.save(4, *trained(2))
    model, optimiser = trained(1)
    assert checkpoints.restore(model, optimiser) == 4
    for mine, theirs in zip(model.parameters(), trained(2)[0].parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_step_log_is_cut_back_to_the_steps_before_the_checkpoint(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "ledger.jsonl")
    log.cut(0)
    assert log.path.read_text() == ""
    log.append(0, [{"task": "a"}, {"task": "é"}])
    log.append(1, [{"task": "c"}])
    log.sync()
    with log.path.open("a") as file:
        file.write('{"step": 0, "tas')
    log.cut(1)
    log.append(1, [{"task": "d"}])
    assert log.path.read_text().splitlines() == [
        '{"step": 0, "task": "a"}',
        '{"step": 0, "task": "é"}',
        '{"step": 1, "task": "d"}',
    ]
