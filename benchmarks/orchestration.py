"""What orchestration costs: a whole `anchorloop run` against the stages inside it, then once more.

Prints seconds a stage, the share of wall time spent outside stages (aim: under 5 %), and the
seconds to pass over an iteration that is already finished (aim: under 5).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def run(home: Path, arguments: list[str]) -> float:
    """Seconds that one run of the command line takes, its servers included."""
    environment = {**os.environ, "ANCHORLOOP_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flows.cli.main", "run", "--name", "bench", *arguments]
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return time.monotonic() - started


def outcomes(home: Path) -> list[dict[str, Any]]:
    """The stages that the run has recorded, in order."""
    lines = (home / "runs" / "bench" / "stages.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def main() -> None:
    """Run, run again, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=3)
    given, rest = parser.parse_known_args()
    arguments = ["--iterations", str(given.iterations), *rest]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        wall = run(home, arguments)
        first = outcomes(home)
        again = run(home, arguments)
        second = outcomes(home)[len(first) :]
    seconds: dict[str, list[float]] = defaultdict(list)
    for outcome in first:
        seconds[outcome["stage"]].append(outcome["seconds"])
    print("seconds a stage (mean over iterations)")
    for stage, values in seconds.items():
        print(f"  {stage:<14} {sum(values) / len(values):8.2f}")
    inside = sum(map(sum, seconds.values()))
    print(f"whole run        {wall:8.2f} s, of which outside stages {(wall - inside) / wall:.1%}")
    ends = [
        max(o["ended"] for o in second if o["iteration"] == t) for t in range(given.iterations + 1)
    ]
    passing = [after - before for before, after in pairwise(ends)]
    if passing:
        print(f"passing over a finished iteration {sum(passing) / len(passing):8.2f} s")
    print(f"whole finished run, servers included {again:8.2f} s")


if __name__ == "__main__":
    main()
