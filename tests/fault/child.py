"""A stage in a process of its own that a server forks with everything heavy already loaded."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

import training.stages.curriculum
import training.stages.executor
import training.trainers.torch.backend  # noqa: F401  loaded before the fork
from tests.fault import injected
from training.stages.__main__ import main

LIMIT_S = 240
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


def _stage(stage: str, place: Path, fault: str) -> None:
    injected.be_patient()
    torch.set_num_threads(1)  # as the undisturbed run has by its environment: rounding follows
    if fault:
        injected.arm(fault)
    sys.exit(main([stage, "--spec", str(place / "spec.json"), "--out", str(place)]))


def start(place: Path, stage: str = "executor", fault: str = "") -> BaseProcess:
    """Start the stage of a store folder, with a fault armed in it."""
    process = _forks.Process(target=_stage, args=(stage, place, fault))
    process.start()
    return process


def run(place: Path, stage: str = "executor", fault: str = "") -> int:
    """Run the stage to its end; its exit status, negative for a signal."""
    process = start(place, stage, fault)
    process.join(LIMIT_S)
    assert process.exitcode is not None, "the stage does not end"
    return process.exitcode


def signalled(
    number: int, when: Callable[[], bool], place: Path, stage: str = "executor", fault: str = ""
) -> int:
    """Start the stage and send it a signal as soon as ``when`` holds; its exit status."""
    process = start(place, stage, fault)
    assert process.pid is not None
    deadline = time.monotonic() + LIMIT_S
    try:
        while not when():
            assert process.is_alive(), "the stage ended before it could be stopped"
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)
        os.kill(process.pid, number)
        process.join(LIMIT_S)
        assert process.exitcode is not None, "the stage does not end"
        return process.exitcode
    finally:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
