"""What every test process needs, however it was started."""

import signal
from collections.abc import Generator

import pytest

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests which
# interrupt a run would then wait for something that cannot happen.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A system test that would be skipped for want of something fails: it is there to be run."""
    report = yield
    if report.skipped and item.get_closest_marker("system"):
        report.outcome = "failed"
        report.longrepr = f"{call.excinfo.value if call.excinfo else 'skipped'}"
    return report
