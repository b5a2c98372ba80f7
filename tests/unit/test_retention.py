"""What retention lets go and what it keeps, on plans of real configurations."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.retention import RunFact, StageFact, kept_weights, retire_raw, retire_weights
from tasks.todo import must_run
from training.config_load import load_config
from training.parts import RAW, Part, part_of
from training.plan import PlanEntry, plan
from training.store import Manifest

PLACES: dict[str, Path] = {}
WEIGHTS = {"base_model", "curriculum", "executor"}


@cache
def entries(method: str, iterations: int, seed: int = 0) -> list[PlanEntry]:
    found = plan(load_config("tiny", method, {"iterations": iterations, "seed": seed}))
    PLACES.update({entry.identity: Path("/store") / entry.identity for entry in found})
    return found


def files_of(stage: str) -> dict[Part, dict[str, int]]:
    files: dict[Part, dict[str, int]] = {}
    if stage in WEIGHTS:
        files["weights"] = {"model/weights.bin": 1000}
    if stage in RAW:
        files["raw"] = dict.fromkeys(RAW[stage], 10)
    return files


class Shelf:
    """A store in the mind: which identities are there, and which parts went."""

    def __init__(self, there: Iterable[str]) -> None:
        self.there = set(there)
        self.gone: dict[str, set[str]] = {}

    def found(self, identity: str) -> Manifest | None:
        if identity not in self.there:
            return None
        return Manifest({}, "", frozenset(self.gone.get(identity, ())))

    def fact(self, name: str, run: list[PlanEntry], scores: dict[int, float]) -> RunFact:
        lacking = must_run([(e.identity, e.spec) for e in run], self.found)
        stages = []
        for entry in run:
            done = entry.identity in self.there
            gone = self.gone.get(entry.identity, set())
            files: dict[Part, dict[str, int]] = {}
            for part, names in files_of(entry.spec.stage).items() if done else []:
                left = {name: size for name, size in names.items() if name not in gone}
                if left:
                    files[part] = left
            score = scores.get(entry.spec.iteration) if entry.spec.stage == "evaluation" else None
            stages.append(
                StageFact(
                    entry.identity,
                    entry.spec.stage,
                    entry.spec.iteration,
                    entry.spec.inputs,
                    done,
                    entry.identity in lacking,
                    files,
                    score if done else None,
                )
            )
        return RunFact(name, stages)

    def clean(self, facts: list[RunFact], spent_anchors: bool = False) -> list[str]:
        """Do all that retention lists; what it was, as ``i1/executor``."""
        listed = [*retire_weights(facts, PLACES, spent_anchors), *retire_raw(facts, PLACES)]
        for deletion in listed:
            assert deletion.identity is not None
            self.gone.setdefault(deletion.identity, set()).update(deletion.retires)
        return sorted({d.what.split()[2] for d in listed if d.kind == "weights"})


def cleaned(
    method: str, iterations: int, scores: dict[int, float] | None = None, spent: bool = False
) -> list[str]:
    run = entries(method, iterations)
    shelf = Shelf(entry.identity for entry in run)
    return shelf.clean([shelf.fact("r", run, scores or {})], spent)


def test_without_an_anchor_the_last_two_and_the_best_stay() -> None:
    assert cleaned("agent0", 5, {1: 0.2, 2: 0.9, 5: 0.3}) == [
        "i1/curriculum",
        "i1/executor",
        "i3/curriculum",
        "i3/executor",
    ]


def test_every_anchor_pins_its_executor() -> None:
    assert cleaned("anchorloop", 5) == ["i1/curriculum", "i2/curriculum", "i3/curriculum"]


def test_spent_anchors_go_when_asked_but_not_those_of_iterations_that_stay() -> None:
    gone = cleaned("anchorloop", 5, spent=True)
    assert gone == [
        "i1/curriculum",
        "i1/executor",
        "i2/curriculum",
        "i2/executor",
        "i3/curriculum",
    ]  # i3/executor is the anchor of i4, which stays
    assert "i0/base_model" not in gone


def test_an_unfinished_run_keeps_what_it_needs_of_a_finished_one() -> None:
    done, longer = entries("agent0", 4), entries("agent0", 6)
    other = entries("agent0", 6, seed=1)
    shelf = Shelf(entry.identity for entry in done)
    facts = [shelf.fact("done", done, {}), shelf.fact("longer", longer, {})]
    assert shelf.clean([*facts, shelf.fact("other", other, {})]) == [
        f"i{t}/{stage}" for t in (1, 2) for stage in ("curriculum", "executor")
    ]
    assert shelf.gone.keys() < {entry.identity for entry in done}
    raw = {name for names in shelf.gone.values() for name in names if part_of(name) == "raw"}
    assert raw == set()  # "longer" shares these iterations and is not finished


def test_raw_records_go_once_every_run_that_has_them_is_finished() -> None:
    run = entries("anchorloop", 2)
    shelf = Shelf(entry.identity for entry in run)
    facts = [shelf.fact("r", run, {})]
    assert {d.what.split()[2] for d in retire_raw(facts, PLACES)} == {
        f"i{t}/{stage}" for t in (1, 2) for stage in ("curriculum", "task_pool")
    }
    shelf.there.discard(run[-1].identity)  # the last evaluation has to run again
    assert retire_raw([shelf.fact("r", run, {})], PLACES) == []


def test_a_retired_artifact_is_done_until_a_stage_to_come_reads_what_went() -> None:
    run = entries("agent0", 3)
    named = {entry.name: entry for entry in run}
    shelf = Shelf(entry.identity for entry in run)
    shelf.gone[named["i2/executor"].identity] = {"model/weights.bin"}
    specs = [(entry.identity, entry.spec) for entry in run]
    assert must_run(specs, shelf.found) == set()
    shelf.there.discard(named["i3/evaluation"].identity)  # reads the executor of i3 alone
    assert must_run(specs, shelf.found) == {named["i3/evaluation"].identity}
    shelf.there.discard(named["i3/executor"].identity)
    lost = {"i3/evaluation", "i3/executor", "i2/executor"}
    assert must_run(specs, shelf.found) == {named[name].identity for name in lost}
    shelf.gone[named["i1/executor"].identity] = {"model/weights.bin"}
    lost.add("i1/executor")  # needed to compute i2/executor again
    assert must_run(specs, shelf.found) == {named[name].identity for name in lost}


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    method=st.sampled_from(["anchorloop", "agent0", "anchorloop_every2", "anchorloop_uncached"]),
    spent=st.booleans(),
)
def test_retention_never_makes_a_stage_run_that_need_not(
    data: st.DataObject, method: str, spent: bool
) -> None:
    """Whatever is done of two runs that share stages: afterwards they have just as much to do."""
    runs = {f"r{t}": entries(method, t) for t in (2, 6)}
    both = sorted({entry.identity for run in runs.values() for entry in run})
    missing = data.draw(st.sets(st.sampled_from(both), max_size=3))
    scores = {t: data.draw(st.sampled_from([0.1, 0.5]), label=f"score {t}") for t in range(7)}
    shelf = Shelf(set(both) - missing)

    def to_do() -> list[set[str]]:
        return [must_run([(e.identity, e.spec) for e in r], shelf.found) for r in runs.values()]

    before = to_do()
    shelf.clean([shelf.fact(name, run, scores) for name, run in runs.items()], spent)
    assert to_do() == before
    again = [shelf.fact(name, run, scores) for name, run in runs.items()]
    assert shelf.clean(again, spent) == []


def test_kept_weights_says_why() -> None:
    run = entries("anchorloop", 2)
    shelf = Shelf(entry.identity for entry in run)
    named = {entry.name: entry.identity for entry in run}
    shelf.there.discard(named["i2/evaluation"])
    kept = kept_weights([shelf.fact("r", run, {})])
    assert kept[named["i2/executor"]] == "i2/evaluation needs it"
    assert kept[named["i0/base_model"]] == "anchor of i1"


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("model/model.safetensors", "weights"),
        ("candidates.jsonl", "raw"),
        ("ledger.jsonl", None),
        ("result.json", None),
    ],
)
def test_parts(file: str, part: Part | None) -> None:
    assert part_of(file) == part
