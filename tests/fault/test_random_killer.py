"""A killer that knows nothing of the places where it is dangerous to be killed.

``make soak`` kills 50 times and prints what docs/faults.md quotes; the system tests, 5 times.
``FAULT_SEED`` repeats the moments of an earlier run as far as the machine's speed allows.
"""

import os
import random
from pathlib import Path

import pytest

from tests.fault.fault_world import STAGES, FaultWorld
from tests.fault.killer import kill_until


@pytest.mark.system
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_at_random_moments_every_run_ends_as_the_undisturbed_one(
    reference: FaultWorld, prefect: str, tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"\nFAULT_SEED={seed}")
    made = iter(range(1000))

    def fresh() -> FaultWorld:
        return reference.copy(tmp_path / f"run{next(made)}", prefect, STAGES[1:])

    done = kill_until(kills, seed, fresh, reference)
    print(f"{done.total} kills in {done.runs} runs and {done.starts} starts, all ends identical")
    print("victims: " + ", ".join(f"{n} × {name}" for name, n in done.victims.most_common()))
    print("moments: " + ", ".join(f"{n} × {name}" for name, n in done.stages.most_common()))
    assert done.total == kills
