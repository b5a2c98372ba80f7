"""The built-in base, judged on development problems with the real engine and the real sandbox."""

import asyncio
from collections import Counter
from statistics import fmean

import pytest
import torch

from training.algorithms.candidate import read_candidate
from training.base_models.gate import base_gate
from training.config_load import load_config
from training.models import load_model, load_tokenizer
from training.prompts import PromptBook, template_path
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Trajectory
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import choose
from training.tiny_world.analysis import in_grammar_share
from training.tiny_world.build import build_tiny
from training.tiny_world.sets import problem_set
from training.tiny_world.warm_start import Prompts
from training.trainers.common import executor_sampling
from training.trainers.torch.setup import tool_loop

pytestmark = pytest.mark.timeout(900)  # a busy machine takes minutes over the warm start

PROBLEMS = 60
GROUP = 8
CANDIDATES = 128


@pytest.fixture(scope="module")
def config():
    return load_config("tiny", "anchorloop", {})


@pytest.fixture(scope="module")
def base(config, tmp_path_factory):
    """The model of profile ``tiny`` at seed 0, its tokenizer and its prompts."""
    folder = tmp_path_factory.mktemp("base")
    curriculum, executor = template_path("tiny_curriculum"), template_path("tiny_executor")
    build_tiny(config.model.tiny, Prompts(curriculum.read_text(), executor.read_text()), 0, folder)
    model, tokenizer = load_model(folder).requires_grad_(False), load_tokenizer(folder)
    book = PromptBook(tokenizer, curriculum, executor, "plain", config.rollout.max_code_chars)
    return model, tokenizer, book


async def solve(config, base) -> list[list[Trajectory]]:
    model, tokenizer, book = base
    problems = problem_set("development")[:PROBLEMS]
    tasks = [Task(p["id"], book.executor(p["problem"])) for p in problems]
    async with Sandbox(config.sandbox) as sandbox:
        _, loop = tool_loop(model, tokenizer, config.rollout, sandbox)
        sampling = executor_sampling(config.rollout)
        return await loop.rollout(tasks, GROUP, sampling, list(range(len(tasks))))


def test_the_base_solves_a_part_with_its_tool_and_has_something_to_learn(config, base):
    try:
        choose(config.sandbox)
    except SandboxError as error:
        pytest.skip(f"no isolation here: {error}")
    groups = asyncio.run(asyncio.wait_for(solve(config, base), 200))
    answers = [p["answer"] for p in problem_set("development")[:PROBLEMS]]
    right = [
        fmean(t.label == answer for t in group)
        for group, answer in zip(groups, answers, strict=True)
    ]
    rows = [t for group in groups for t in group]
    labels = Counter(t.label for t in rows if t.status is Status.VALID)
    base_gate(fmean(right), max(labels.values()) / len(rows))
    assert fmean(right) < 0.6, "nothing left to learn"
    assert 0.3 < fmean(t.n_tool > 0 for t in rows) < 0.9
    assert fmean(t.status is Status.VALID for t in rows) > 0.7
    solvable = fmean(any(t.label == a for t in g) for g, a in zip(groups, answers, strict=True))
    assert solvable > fmean(right) + 0.3, "votes and samples must know more than one sample does"


def test_the_base_poses_different_readable_problems_of_the_grammar(base):
    model, tokenizer, book = base
    prompt = torch.tensor([book.curriculum] * CANDIDATES)
    torch.manual_seed(0)
    rows = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=0, max_new_tokens=48
    )
    texts = tokenizer.batch_decode(rows[:, prompt.shape[1] :], skip_special_tokens=True)
    candidates = [read_candidate(text) for text in texts]
    problems = [c.problem for c in candidates if c.r_fmt and c.problem]
    assert len(problems) > 0.7 * CANDIDATES
    assert in_grammar_share(problems) > 0.6
    assert len(set(problems)) > 0.8 * len(problems)
