"""What orchestration costs: a tiny run, a Retry, tracking, and MLflow's page with 50 runs in it.

    python benchmarks/operations.py [--iterations 3] [--profile tiny …]

Further arguments go to `anchorloop run` for the tiny run, which is the only part with real stages:
the others use the tests' stub stages, so that what they show is orchestration alone. Everything is
measured once, from outside, on servers started for it; the search of MLflow is the best of five.
"""

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.metric_keys import CHILD
from tasks.tracking import PARENT, Tracker, child
from tests.integration.flow_world import Prefect, World
from training.config_load import load_config

RUNS, ITERATIONS, STEPS = 50, 4, 8
BATCH, BATCHES = 10, 100
"""Points a step, and steps: a thousand metric points."""
RETRY = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry"}


def say(what: str, seconds: float) -> None:
    print(f"  {what:<58} {seconds:8.2f} s", flush=True)


def outcomes(world: World, run: str) -> list[dict[str, Any]]:
    """The stages that a run has recorded, in order."""
    lines = (world.root / "runs" / run / "stages.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def tiny_run(root: Path, iterations: int, rest: list[str]) -> None:
    """A whole run against the seconds inside its stages, then the same command once more."""
    world = World(root / "tiny", stubs=False)
    arguments = ("run", "--name", "bench", "--iterations", str(iterations), *rest)

    def timed() -> float:
        started = time.monotonic()
        done = world.cli(*arguments)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return time.monotonic() - started

    wall = timed()
    first = outcomes(world, "bench")
    again = timed()
    second = outcomes(world, "bench")[len(first) :]
    seconds: dict[str, list[float]] = defaultdict(list)
    for outcome in first:
        seconds[outcome["stage"]].append(outcome["seconds"])
    print("a tiny run")
    for stage, values in seconds.items():
        say(f"{stage}, mean over iterations", sum(values) / len(values))
    inside = sum(map(sum, seconds.values()))
    say("whole run", wall)
    print(f"  {'share of it outside stages':<58} {(wall - inside) / wall:8.1%}")
    ends = [max(o["ended"] for o in second if o["iteration"] == t) for t in range(iterations + 1)]
    passing = [after - before for before, after in pairwise(ends)]
    if passing:
        say("pass over a finished iteration", sum(passing) / len(passing))
    say("the finished run once more, servers included", again)


def retry(world: World, prefect: Prefect) -> None:
    """From Retry on a failed experiment to the failed stage running again."""
    stage = "executor:2 from"
    run = prefect.trigger("experiment/experiment", {"name": "retried", "iterations": 2})
    if run["state_type"] != "FAILED":
        sys.exit(f"the run should have failed once: {run['state']}")
    before = len([line for line in world.starts if line.startswith(stage)])
    started = time.monotonic()
    prefect.call(f"/flow_runs/{run['id']}/set_state", {"state": RETRY})
    while len([line for line in world.starts if line.startswith(stage)]) == before:
        if time.monotonic() - started > 300:
            sys.exit("the stage did not start again")
        time.sleep(0.01)
    print("Retry of an experiment whose executor failed in iteration 2")
    say("until it runs again, 12 finished stages passed over", time.monotonic() - started)
    while prefect.call(f"/flow_runs/{run['id']}")["state_type"] != "COMPLETED":
        time.sleep(0.5)


def tracking(root: Path, stores: dict[str, tuple[str, Path | None]]) -> None:
    """A thousand points: what the driver waits, and when they are in MLflow."""
    print(f"tracking {BATCH * BATCHES:,} metric points, {BATCH} at a time")
    for name, (uri, artifacts) in stores.items():
        told = Tracker(root / f"tracking-{name}", uri, "points", name, artifacts)
        told.open(PARENT, name, {})
        told.tags(PARENT, {"began": "yes"})
        while told.address(PARENT) is None:
            time.sleep(0.01)
        started = time.monotonic()
        for step in range(BATCHES):
            told.metrics(PARENT, step, {f"key{i}": step / (i + 1) for i in range(BATCH)})
        said = time.monotonic() - started
        told.close(300)
        say(f"{name}: in the driver", said)
        say(f"{name}: until all are in the store", time.monotonic() - started)


def fill(root: Path, uri: str, artifacts: Path) -> None:
    """``RUNS`` finished runs of ``ITERATIONS`` iterations, as ours report them."""
    config = load_config("tiny", "anchorloop", {"iterations": ITERATIONS}).model_dump(mode="json")
    keys = [f"{stage}/{key}" for stage, names in CHILD.items() for key in names]
    started = time.monotonic()
    for number in range(RUNS):
        name = f"run-{number:02}"
        told = Tracker(root / name, uri, "fifty", name, artifacts)
        told.open(PARENT, name, {"method": "anchorloop", "seed": str(number)})
        told.params(PARENT, {**config, "seed": number})
        for t in range(ITERATIONS + 1):
            told.metrics(PARENT, t, {"greedy": t / 10, "mean_at_8": t / 20})
            told.open(child(t), f"{name}/i{t}", {"iteration": str(t)})
            for step in range(STEPS):
                told.metrics(child(t), step, dict.fromkeys(keys, step + number / 100))
            told.end(child(t), "FINISHED")
        told.end(PARENT, "FINISHED")
        if not told.close(300):
            sys.exit("the store did not take everything")
    print(f"MLflow with {RUNS} runs of {ITERATIONS} iterations (0 to {ITERATIONS})")
    say("to fill the store", time.monotonic() - started)


def page(mlflow: str) -> None:
    """The search that MLflow's page makes, and the page in a browser where one is there."""
    found = f"{mlflow}/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=fifty"
    with urllib.request.urlopen(found, timeout=60) as response:
        experiment = json.load(response)["experiment"]["experiment_id"]
    body = {
        "experiment_ids": [experiment],
        "max_results": 100,
        "order_by": ["attributes.start_time DESC"],
        "run_view_type": "ACTIVE_ONLY",
    }
    request = urllib.request.Request(
        f"{mlflow}/ajax-api/2.0/mlflow/runs/search",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    times = []
    for _ in range(5):
        started = time.monotonic()
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = response.read()
        times.append(time.monotonic() - started)
    runs = len(json.loads(answer)["runs"])
    say(f"the page's search, {runs} runs, {len(answer) >> 10} KiB", min(times))
    chromium = shutil.which("chromium")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("  the page itself: no browser here")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page()
        for attempt in ("first", "second"):
            started = time.monotonic()
            view.goto(f"{mlflow}/#/experiments/{experiment}/runs")
            view.get_by_text(f"run-{RUNS - 1:02}", exact=True).first.wait_for(timeout=120_000)
            say(
                f"the page with its newest run in sight, {attempt} visit",
                time.monotonic() - started,
            )
            view.goto("about:blank")
        browser.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=3)
    given, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tiny_run(root, given.iterations, rest)
        world = World(root / "servers", stubs=True)
        with world.servers(STUB_FAIL="executor:2:numeric") as prefect:
            retry(world, prefect)
            state = json.loads((world.root / ".anchorloop" / "services.json").read_text())
            mlflow = state["services"]["mlflow"]["url"]
            own = world.root / ".anchorloop" / "mlflow"
            uri = f"sqlite:///{own / 'mlflow.db'}"
            stores = {"SQLite": (uri, own / "artifacts"), "server": (mlflow, None)}
            tracking(root, stores)
            fill(root, uri, own / "artifacts")
            page(mlflow)


if __name__ == "__main__":
    main()
