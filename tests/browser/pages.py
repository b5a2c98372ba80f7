"""What a person does in the pages of Prefect and MLflow."""

import contextlib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

PATIENCE_MS = 120_000


class Screen:
    """One browser window that keeps numbered pictures of what it saw."""

    def __init__(self, browser: Browser, pictures: Path, height: int) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1400, "height": height})
        self.page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        self._pictures = pictures

    def picture(self, name: str) -> None:
        """Keep the whole page as it is, once nothing moves any more."""
        self.page.wait_for_timeout(1000)
        number = len(list(self._pictures.iterdir())) + 1
        path = self._pictures / f"{number:02d}_{name}.png"
        self.page.screenshot(path=path, full_page=True)


class PrefectPages(Screen):
    """Prefect's own user interface."""

    def __init__(self, browser: Browser, pictures: Path, url: str) -> None:
        super().__init__(browser, pictures, height=1000)
        self._url = url

    def open_form(self, deployment: str) -> None:
        """From the start page to the run form of a deployment."""
        page = self.page
        page.goto(self._url)
        page.get_by_role("link", name="Deployments").click()
        page.get_by_role("link", name=deployment, exact=True).first.wait_for()
        self.picture("deployments")
        page.get_by_role("link", name=deployment, exact=True).first.click()
        page.get_by_role("button", name="Run", exact=True).click()
        self.picture("deployment")
        page.get_by_role("menuitem", name="Custom run").click()
        self.field("profile").wait_for()

    def field(self, name: str, section: str | None = None) -> Locator:
        """The input of a parameter, or of a key in an opened section."""
        label = self.page.get_by_text(f"{section or name} (Optional)", exact=True).first
        if section:
            label = label.locator(f"xpath=following::label[.='{name} (Optional)'][1]")
        return self.page.locator(f'[id="{label.get_attribute("for")}"]')

    def select(self, name: str, value: str) -> None:
        """Choose a value of a parameter that is a select."""
        self.field(name).click()
        self.page.get_by_role("option", name=value, exact=True).click()

    def open_section(self, *names: str) -> None:
        """Open sections of the overrides."""
        for name in names:
            self.page.get_by_role("tab", name=name, exact=True).click()

    def press_submit(self) -> None:
        self.page.get_by_role("button", name="Submit").click()

    def submit(self) -> None:
        """Submit the form, again where a busy server did not take it the first time."""
        for patience_ms in (20_000, 40_000, PATIENCE_MS):
            self.press_submit()
            with contextlib.suppress(TimeoutError):
                self.page.wait_for_url("**/deployment/*?tab=Runs", timeout=patience_ms)
                return
            self.picture("not_submitted")
        raise AssertionError("the form was not taken; see the pictures")

    def open_run(self, flow_run: str) -> None:
        self.page.goto(f"{self._url}/v2/runs/flow-run/{flow_run}")
        self.page.get_by_role("tab", name="Details").wait_for()

    def menu(self, item: str) -> None:
        """Choose from the menu of a flow run."""
        self.page.get_by_role("button", name="Open menu").click()
        self.page.get_by_role("menuitem", name=item).click()


class MlflowPages(Screen):
    """MLflow's own user interface."""

    def __init__(self, browser: Browser, pictures: Path, url: str) -> None:
        super().__init__(browser, pictures, height=1800)  # its pages scroll inside
        self._url = url

    def open_runs(self, experiment: str) -> None:
        """The table of runs of an experiment."""
        self.page.goto(f"{self._url}/#/experiments/{experiment}/runs")
        self.page.get_by_role("checkbox", name="Select all runs").wait_for()
        assistant = self.page.get_by_role("button", name="Close", exact=True)
        if assistant.is_visible():
            assistant.click()

    def compare(self, *names: str) -> None:
        """Choose runs in the table and compare them."""
        for name in names:
            row = self.page.get_by_role("row").filter(has_text=name)
            row.get_by_role("checkbox").first.click()
        self.page.get_by_role("button", name="Compare").click()

    def open_run(self, run: Any) -> None:
        """The page of one run."""
        info = run.info
        self.page.goto(f"{self._url}/#/experiments/{info.experiment_id}/runs/{info.run_id}")
        self.page.get_by_text(info.run_name, exact=True).first.wait_for()
