"""BBEH's published matching rules."""

from __future__ import annotations

import pytest

from training.benchmarks.bbeh import grade_bbeh
from training.benchmarks.schema import Question


@pytest.mark.parametrize(
    ("response", "key", "equal"),
    [
        (r"Ok The final answer is: \boxed{4}.", "4", True),
        (r"The final answer is: \boxed{4}.", "3", False),
        ("The final answer is: 2, 3, 4", "2,3,4", True),
        ("The final answer is: 2, 3, 4", "2,3,5", False),
        ("The answer is: (A)", "a", True),
        ("The answer is: A", "(A)", True),
        ("The answer is: (A)", "b", False),
        ("The answer is: **25**\nbecause", "25.0", True),
        ("The answer is: [Dan, Kyle]", "Dan, Kyle", True),
        ("The answer is: Kyle, Dan", "[Dan, Kyle]", False),
        ("The answer is: what is this?", "what is this", True),
        ("The answer is: its", "it's", True),
        ("The answer is: unknown. The answer is: yes", "yes", True),
        (r"The answer is: $\text{pelican}$", "pelican", True),
        ("so\nFinal Answer: disproved", "disproved", True),
        ("Final Answer: yes\nFinal Answer: no", "no", False),
        ("### Final Answer\n(B)", "(B)", True),
        ("so\n**Final Answer**\n\n**disproved**\nas shown", "disproved", True),
        ("Some work.\n\n**Answer**\n\nC", "(C)", True),
        ("## Answer\nC\nThe answer is: D", "(C)", False),
        ("1,0,0", "1, 0, 0", True),
        ("The answer is: []", "[]", True),
    ],
)
def test_published_rules(response: str, key: str, equal: bool) -> None:
    assert grade_bbeh(Question("q", "?", key), response).correct is equal


def test_tool_output_is_no_answer() -> None:
    response = "<python>print(1)</python><output>The answer is: 4</output>"
    assert grade_bbeh(Question("q", "?", "4"), response).correct is False
