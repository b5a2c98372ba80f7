"""A person at the pages of Prefect and MLflow: start, see it fail, retry, compare."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.pages import MlflowPages, PrefectPages
from tests.integration.flow_world import Prefect, World, mlflow_runs

pytestmark = pytest.mark.system

SHORT: dict[str, dict[str, Any]] = {
    "curriculum": {"steps": 1, "batch_size": 8},
    "executor": {"steps": 2},
    "evaluation": {"limit": 8},
    "gate": {"min_mean_at_k": 0, "max_top_answer_share": 1},
    "checkpoints": {"every": 1},
}
STEPS = 300
"""Of the warm start: enough for a base model whose answers have a form."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("browser") / "root", stubs=False)


@pytest.fixture(scope="module")
def prefect(world: World) -> Iterator[Prefect]:
    with world.servers() as prefect:
        yield prefect


@pytest.mark.timeout(1800)
def test_start_fail_retry_and_compare(
    browser: Browser, pictures: Path, world: World, prefect: Prefect
) -> None:
    pages = PrefectPages(browser, pictures, prefect.url)
    pages.open_form("experiment")
    pages.picture("empty_form")
    pages.select("method", "anchorloop")
    pages.field("seed").fill("3")
    pages.field("name").fill("first")
    pages.open_section("Overrides", "Model", "Tiny model")
    pages.field("warm_start_steps", "tiny").fill(str(STEPS))
    for section, values in SHORT.items():
        pages.open_section(section.capitalize())
        for key, value in values.items():
            pages.field(key, section).fill(str(value))
    pages.field("iterations").fill("101")
    pages.press_submit()
    refused = pages.field("iterations").evaluate("field => field.validationMessage")
    assert "less than or equal to 100" in refused
    pages.field("iterations").fill("1")
    pages.picture("filled_form")
    pages.submit()
    run = prefect.named("first")
    sections = run["parameters"].pop("overrides")
    opened = {name: values for name, values in sections.items() if values is not None}
    assert opened == {"model": {"tiny": {"warm_start_steps": STEPS}}, **SHORT}
    assert run["parameters"] == {
        "profile": "tiny",
        "method": "anchorloop",
        "seed": 3,
        "iterations": 1,
        "name": "first",
        "on_busy": "wait",
        "stage_hours": 72,
        "study": "anchorloop",
    }

    world.kill("training.stages", "executor")
    assert prefect.wait(run["id"])["state_type"] == "FAILED"
    pages.open_run(run["id"])
    expect(pages.page.get_by_text("Failed", exact=True).first).to_be_visible()
    pages.page.get_by_role("tab", name="Details").click()
    sentence = "i1/executor failed, interrupted: its process was killed"
    expect(pages.page.get_by_text(sentence).first).to_be_visible()
    pages.picture("failed_run")

    pages.menu("Retry")
    pages.picture("retry_dialog")
    pages.page.get_by_role("alertdialog").get_by_role("button", name="Retry").click()
    assert prefect.wait(run["id"], run_count=2)["state_type"] == "COMPLETED"
    pages.open_run(run["id"])
    expect(pages.page.get_by_text("Completed", exact=True).first).to_be_visible()
    pages.picture("completed_run")
    pages.page.get_by_role("tab", name="Subflow Runs").click()
    pages.picture("iterations_of_the_run")
    for stage in ("i0/base_model", "i1/curriculum", "i1/anchor_cache"):
        assert prefect.states("task_runs", f"first/{stage}") == ["Completed", "Reused"], stage
    assert prefect.states("task_runs", "first/i1/executor") == ["Completed", "Failed"]
    pages.open_run(prefect.newest("flow_runs", "first/i1")["id"])
    pages.page.get_by_role("tab", name="Task Runs").click()
    expect(pages.page.get_by_text("Reused", exact=True).first).to_be_visible()
    pages.picture("stages_of_an_iteration")
    pages.page.get_by_role("tab", name="Artifacts").click()
    pages.picture("artifacts_of_an_iteration")

    pages.open_run(run["id"])
    pages.menu("Copy to new run")
    pages.field("profile").wait_for()
    pages.select("method", "agent0")
    pages.field("name").fill("second")
    pages.submit()
    second = prefect.wait(prefect.named("second")["id"])
    assert second["state_type"] == "COMPLETED", second["state"]
    assert prefect.states("task_runs", "second/i0/base_model") == ["Reused"]

    runs = mlflow_runs(world.root)
    compared = MlflowPages(browser, pictures, prefect.mlflow)
    compared.open_runs(runs["first"].info.experiment_id)
    compared.picture("mlflow_runs")
    compared.compare("first", "second")
    expect(compared.page.get_by_text("Comparing 2 Runs")).to_be_visible()
    for text in ("first", "second", "agent0"):
        expect(compared.page.get_by_text(text, exact=True).first).to_be_visible()
    compared.picture("mlflow_comparison")
    compared.open_run(runs["first"])
    compared.picture("mlflow_run")
