"""The progress bar in Prefect: it delays nobody, and a stage that is over hears no more of it."""

import threading

import pytest

from tasks import reports
from tasks.watch import Progress

HALF = Progress(done=1, total=2, unit="steps", eta_s=None, message="")


class Away(Exception):
    """The server does not answer."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A server that answers no request until the event is set, and then with an error."""
    answers = threading.Event()

    def ask(*_: object) -> None:
        answers.wait(30)
        raise Away("no")

    monkeypatch.setattr(reports, "create_progress_artifact", ask)
    monkeypatch.setattr(reports, "LONG_S", 0.0)
    monkeypatch.setattr(reports, "LAST_WORD_S", 0.05)
    return answers


def sending() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_trouble_is_told_while_the_stage_runs(
    server: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    server.set()
    with reports.ProgressBar("key") as bar:
        bar(HALF)
        for thread in sending():
            thread.join(30)
    assert "Prefect did not take an artifact (Away): no" in caplog.text


def test_a_hanging_request_is_left_behind_without_a_word(
    server: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with reports.ProgressBar("key") as bar:
        bar(HALF)
        bar(HALF)  # the first still hangs: no second one
        (left,) = sending()
    server.set()
    left.join(30)
    assert not left.is_alive()
    assert caplog.text == ""
