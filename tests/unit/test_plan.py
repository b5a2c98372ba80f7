"""The DAG and its identities: what is shared between runs and what a change recomputes."""

from pathlib import Path

import pytest

from training.config_load import load_config, parse_assignments
from training.plan import PlanEntry, plan


def entries(method: str = "anchorloop", *overrides: str) -> dict[str, PlanEntry]:
    return {
        entry.name: entry
        for entry in plan(load_config("tiny", method, parse_assignments(list(overrides))))
    }


def changed(before: dict[str, PlanEntry], after: dict[str, PlanEntry]) -> set[str]:
    return {name for name in before if before[name].identity != after[name].identity}


def test_the_dag_of_anchorloop() -> None:
    dag = entries()
    first = ["i1/anchor", "i1/curriculum", "i1/task_pool", "i1/anchor_cache"]
    first += ["i1/executor", "i1/evaluation"]
    assert list(dag)[:8] == ["i0/base_model", "i0/evaluation", *first]
    i2 = dag["i2/executor"].spec.inputs
    assert i2["executor"] == dag["i1/executor"].identity
    assert i2["base"] == dag["i0/base_model"].identity
    assert dag["i2/curriculum"].spec.inputs["curriculum"] == dag["i1/curriculum"].identity
    assert dag["i2/anchor"].spec.inputs["executor"] == dag["i1/executor"].identity


def test_agent0_has_no_anchor_anywhere() -> None:
    assert not [name for name in entries("agent0") if "anchor" in name]
    assert "i1/anchor_cache" not in entries("rref_only")
    assert "i1/anchor" in entries("rref_only")
    assert "i1/anchor_cache" not in entries("anchorloop_uncached")
    assert "anchor" in entries("anchorloop_uncached")["i1/executor"].spec.inputs
    assert "anchor" not in entries("ahist_only")["i1/curriculum"].spec.inputs


@pytest.mark.parametrize(
    ("method", "sources"),
    [
        ("anchorloop", [0, 1, 2, 3]),
        ("anchorloop_fixed", [0, 0, 0, 0]),
        ("anchorloop_every2", [0, 0, 2, 2]),
    ],
)
def test_refresh_schedules(method: str, sources: list[int]) -> None:
    dag = entries(method, "iterations=4")
    executors = {0: dag["i0/base_model"].identity}
    executors |= {t: dag[f"i{t}/executor"].identity for t in range(1, 5)}
    found = [dag[f"i{t}/anchor"].spec.inputs["executor"] for t in range(1, 5)]
    assert found == [executors[s] for s in sources]


def test_base_methods_only_evaluate() -> None:
    assert list(entries("base")) == ["i0/base_model", "i0/evaluation"]
    tool, plain = entries("base_tool"), entries("base")
    assert tool["i0/base_model"].identity == plain["i0/base_model"].identity
    assert tool["i0/evaluation"].identity != plain["i0/evaluation"].identity


def test_a_change_recomputes_only_what_depends_on_it() -> None:
    before = entries()
    evaluations = {name for name in before if name.endswith("evaluation")}
    assert changed(before, entries("anchorloop", "evaluation.samples=4")) == evaluations
    after = changed(before, entries("anchorloop", "executor.alpha=0.5"))
    kept = {"i0/base_model", "i0/evaluation"}
    kept |= {f"i1/{stage}" for stage in ("anchor", "curriculum", "task_pool", "anchor_cache")}
    assert after == set(before) - kept


def test_more_iterations_keep_the_first_ones() -> None:
    assert changed(entries("anchorloop", "iterations=2"), entries()) == set()


def test_methods_share_what_is_equal() -> None:
    a, b = entries(), entries("agent0")
    shared = {name for name in a.keys() & b.keys() if a[name].identity == b[name].identity}
    assert shared == {"i0/base_model", "i0/evaluation"}


def test_where_it_runs_changes_nothing() -> None:
    assert changed(entries(), entries("anchorloop", "checkpoints.every=1")) == set()
    assert changed(entries(), entries("anchorloop", "sandbox.workers=1")) == set()


def test_the_seed_is_in_every_identity_of_a_trained_model() -> None:
    before, after = entries(), entries("anchorloop", "seed=1")
    assert changed(before, after) == set(before)


def test_the_bytes_of_a_model_folder_are_in_its_identity(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    asked = ("model.source=folder", f"model.name={tmp_path}")
    before = entries("base", *asked)
    assert changed(before, entries("base", *asked)) == set()
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert changed(before, entries("base", *asked)) == set(before)


def test_stages_of_another_interpreter_have_its_libraries(tmp_path: Path) -> None:
    def dag(version: str, image: str | None = None) -> dict[str, PlanEntry]:
        python = tmp_path / f"python-{version}"
        python.write_text(f"""#!/bin/sh\necho '{{"vllm": "{version}"}}'\n""")
        python.chmod(0o755)
        trainer = {"backend": "verl", "python": str(python)}
        config = load_config("qwen3-4b", "anchorloop", {"iterations": 1, "trainer": trainer})
        return {entry.name: entry for entry in plan(config, image)}

    old, new = dag("1"), dag("2")
    assert old["i1/curriculum"].spec.libraries == {"vllm": "1"}
    assert "torch" in old["i1/task_pool"].spec.libraries
    assert changed(old, new) == set(old) - {"i0/base_model", "i1/anchor"}
    assert dag("1", "gpu:7")["i1/executor"].spec.libraries == {"image": "gpu:7"}
