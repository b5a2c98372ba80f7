"""Free-form answers: where they are read, what shape they have, when two are the same."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithms.answers import canonical_label
from training.benchmarks.grading import Grader, policy
from training.benchmarks.math_equal import Judge, Policy
from training.benchmarks.math_key import keys, same_key, value
from training.benchmarks.math_reading import read_any, read_stated
from training.benchmarks.schema import AnswerKind, GradeStatus, Question
from training.benchmarks.structure import Shape, read_structure
from training.benchmarks.verify_pool import VerifyPool


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with VerifyPool() as pool:
        yield Judge(pool)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Final Answer: 5", "5"),
        ("**Final Answer:** 5", "5"),
        ("### Final Answer\n\nso 7\nFinal Answer:\n\n$$5$$", "5"),
        ("Final Answer: The final answer is $20\\%$. I hope it is correct.", "$20\\%$"),
        ("So Jane. Final Answer: Jane started 3 hours ago. I hope it is correct.", "3"),
        ("first \\boxed{3}, then \\boxed{4}.", "3, 4"),
        ("first \\boxed{3}. Much later and elsewhere: \\boxed{4}", "4"),
        ("\\boxed{1} papers and \\boxed{2} bins", "1, 2"),
        ("\\boxed{7} … \\boxed{7}", "7"),
        ("$\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("so $\\boxed 7$ it is", "7"),
        ("\\fbox{4}", "4"),
        ("work\n#### -15", "-15"),
        ("work <<2*3=6>>6\nA: 6", "6"),
        ("The answer is 42 because geometry proves it", "42"),
        ("The answer is: $x = 3$.", "$x = 3$"),
        ("42", "42"),
        ("(3, 4]", "(3, 4]"),
        ("The answer is 5.\n\nQuestion: what is 1+1?\nThe answer is 2.", "5"),
        ("\\boxed{5}\n\nQuestion: What is 3+4?\nAnswer: \\boxed{7}", "5"),
        ("The answer is 5.\n\nQ: What is 3+4?\nA: The answer is 7.", "5"),
        ("The answer is 5.\n\nQuestion: 3+4?\nFinal Answer: 7", "5"),
        ("So $\\boxed{5}$.\n\nHuman: Find 3+4.\n\nAssistant: $\\boxed{7}$", "5"),
        ("\\boxed{5}\n\n[Question]\nfoo \\boxed{8}", "5"),
        ("The answer is 5\n\n### Problem\nTom.\n### Solution\n#### 7", "5"),
        ("Question: what is 2+3?\nSolution: \\boxed{5}", "5"),
        ("To find the answer:\n\nQuestion: what is 2+3?\n\\boxed{5}", "5"),
    ],
)
def test_reads_the_stated_answer(response: str, answer: str) -> None:
    assert read_stated(response).answer == answer


@pytest.mark.parametrize(
    "response",
    [
        "",
        "I do not know.",
        "We try 3 and then 4 but cannot go on",
        "<think>\\boxed{42}</think> Some other text.",
        "<think>\\boxed{42}",
        "<python>print('Final Answer: 5')</python>",
        "<output>Final Answer: 5</output>",
        "```output\nFinal Answer: 5\n```",
        "Final Answer: 5\nFinal Answer: 6",
        "\\boxed{\\frac12",
    ],
)
def test_reads_nothing_where_no_one_answer_is_stated(response: str) -> None:
    assert read_stated(response).answer is None


def test_only_the_generic_reader_takes_the_last_value_of_a_text() -> None:
    text = "First compute 6*7.\nThat makes 42 in all"
    assert read_stated(text).answer is None
    assert read_any(text).answer == "42"
    assert read_any("__import__('os').system('x') or 0").answer is None


@pytest.mark.parametrize(
    ("text", "shape", "parts"),
    [
        ("1,000", Shape.SINGLE, 0),
        ("11,\\! 111,\\! 111,\\! 100", Shape.SINGLE, 0),
        ("1, 2 and 3", Shape.LIST, 3),
        ("19 \\text{ and }43", Shape.LIST, 2),
        ("1 \\pm \\sqrt{19}", Shape.LIST, 2),
        ("\\{1\\pm\\sqrt{5},-2\\}", Shape.SET, 3),
        ("(1,2)", Shape.TUPLE, 2),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", Shape.TUPLE, 2),
        ("(3,4]", Shape.INTERVAL, 2),
        ("x \\in [-2,7]", Shape.TUPLE, 2),
        ("(5,\\infty)", Shape.INTERVAL, 2),
        ("0 \\le x < 1", Shape.INTERVAL, 2),
        ("(0,9) \\cup (9,36)", Shape.UNION, 2),
        ("(1,8,19), (2,7,13)", Shape.LIST, 2),
        ("x=1,y=2;x=3,y=4", Shape.LIST, 2),
        ("[90]", Shape.SINGLE, 0),
        ("\\frac{a}{b}", Shape.SINGLE, 0),
        ("(a+5)(b+2)", Shape.SINGLE, 0),
    ],
)
def test_shapes(text: str, shape: Shape, parts: int) -> None:
    node = read_structure(text)
    assert (node.shape, len(node.parts)) == (shape, parts)


SAME = [
    ("1/2", "0.5"), ("1/2", "\\frac12"), ("0.335", "33.5\\%"), ("50", "50\\%"),
    ("10,\\!080", "10080"),
    ("1000", "1\\,000"), ("1000", "1e3"), ("1000.0", "1000,0"), ("\\$32,\\!348", "32348"),
    ("1/3", "0.333333"), ("\\pi", "3.14159265"), ("\\sqrt{2}", "1.4142135623730951"),
    ("2.314814814815 \\times 10^{-3}", "\\frac{1}{432}"), ("90^\\circ", "90"),
    ("12 \\text{ inches}", "12"), ("864 \\mbox{ inches}^2", "864"), ("x=5", "5"), ("1,-2", "-2, 1"),
    ("3 \\pm 2\\sqrt{2}", "3-2\\sqrt{2}, 3+2\\sqrt{2}"), ("[0,1)", "0\\le x<1"), ("2,3", "3 and 2"),
    ("(-\\infty, 2) \\cup (3, \\infty)", "x<2 \\text{ or } x>3"), ("52_8", "52_{8}"),
    ("52_8", "52"),
    ("\\text{(C)}", "C"), ("\\text{Evelyn}", "evelyn"), ("p - q", "-q+p"), ("6 - 5i", "-5i+6"),
    ("(a+5)(b+2)", "ab+2a+5b+10"), ("y = 2x + 3", "2x+3"), ("1024", "2^{10}"), ("120", "4!*5"),
    ("\\begin{pmatrix} 1/3 \\\\ 2 \\end{pmatrix}", "\\begin{bmatrix}\\frac13 \\\\ 2\\end{bmatrix}"),
    ("(2,2,2),(3,4,3)", "(3,4,3), (2,2,2)"), ("f(x)=-1,f(x)=x+1", "f(x)=x+1, f(x)=-1"),
]  # fmt: skip
DIFFERENT = [
    ("1/3", "0.33"), ("\\pi", "3.14"), ("22/7", "3.14"), ("3.14160", "3.14159"), ("(1,2)", "(2,1)"),
    ("(3,4]", "[3,4]"), ("[1,2]", "[1,2)"), ("12", "1,23"), ("12", "(1,2)"), ("10", "10, 11"),
    ("99999999999999999999", "100000000000000000000"), ("0", "0.000000001"), ("52_8", "52_9"),
    ("\\text{Evelyn}", "\\text{Briana}"), ("\\text{(C)}", "B"), ("-2,1", "2,-1"), ("x^2", "x^3"),
    ("z^2", "x^2 + y^2 = z^2"), ("4:30", "4:31"), ("\\pm 2021", "2021"), ("3:1", "1:3"),
    ("90^\\circ", "\\frac{\\pi}{2}"), ("\\sin(x)=1/2", "\\cos(x)=1/2"),
    ("10^{10^{10}}", "10^{10}"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same_answer(judge: Judge, gold: str, answer: str) -> None:
    assert judge.judge(gold, answer).equal


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers(judge: Judge, gold: str, answer: str) -> None:
    assert not judge.judge(gold, answer).equal


def test_both_judges_are_recorded(judge: Judge) -> None:
    by_key = judge.judge("1/2", "0.5")
    assert (by_key.key_equal, by_key.verify_equal) == (True, None)
    by_verify = judge.judge("p - q", "-q + p")
    assert (by_verify.key_equal, by_verify.verify_equal) == (None, True)


def test_minerva_accepts_one_per_cent_and_published_forms(judge: Judge) -> None:
    rule = policy(AnswerKind.MINERVA, Question("m", "?", "4.5e33"))
    for answer in ("4.5 \\times 10^{33}", "4.54e33", "4.46 \\times 10^{33}\\text{ erg/s}"):
        assert judge.judge("4.5e33", answer, rule).equal
    assert not judge.judge("4.5e33", "4.6e33", rule).equal
    assert judge.judge("-1./3", "-0.333", rule).equal
    assert not judge.judge("0", "0.001", rule).equal
    assert not judge.judge("2", "-2", rule).equal


def test_a_stated_tolerance_is_absolute(judge: Judge) -> None:
    rule = Policy(absolute=Fraction("0.1"))
    assert judge.judge("4.2", "4.3", rule).equal
    assert judge.judge("4.2", "4.25 %", rule).equal
    assert not judge.judge("4.2", "4.31", rule).equal


async def test_a_conflict_is_unparsed_and_wrong() -> None:
    async with Grader() as grader:
        verdict = await grader.grade(
            AnswerKind.MATH, Question("q", "?", "5"), "Final Answer: 5\nFinal Answer: 6"
        )
    assert verdict.correct is False
    assert verdict.status is GradeStatus.UNPARSED


numbers = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)


def spellings(number: Fraction) -> list[str]:
    p, q = number.numerator, number.denominator
    forms = [f"{p}/{q}", f"\\frac{{{p}}}{{{q}}}", f"{2 * p}/{2 * q}", f"$\\dfrac{{{p}}}{{{q}}}$"]
    return [*forms, str(p), f"{p}.0", f"{p:,}"] if q == 1 else forms


@given(numbers, numbers, numbers, st.data())
def test_the_key_is_an_equivalence_relation(
    a: Fraction, b: Fraction, c: Fraction, data: st.DataObject
) -> None:
    x, y, z = (data.draw(st.sampled_from(spellings(n))) for n in (a, b, c))
    assert same_key(x, x) is True
    assert same_key(x, y) is same_key(y, x) is (a == b)
    if same_key(x, y) and same_key(y, z):
        assert same_key(x, z) is True


@given(numbers)
def test_every_spelling_has_one_key(number: Fraction) -> None:
    assert len({label for s in spellings(number) for label in keys(s)}) == 1


@given(
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", fullmatch=True)
    | st.integers(0, 10**20).map(lambda n: f"{n:,}")
)
def test_the_short_cut_for_plain_numbers_is_the_key(text: str) -> None:
    assert keys(text) == {canonical_label(text)}


@pytest.mark.parametrize(
    ("answer", "approximate"),
    [("2\\sqrt{3}", 3.4641016151377544), ("\\frac{\\pi}{3}+1", 2.0471975511965976), ("7/4", 1.75)],
)
def test_labels_have_values(answer: str, approximate: float) -> None:
    (label,) = keys(answer)
    found = value(label)
    assert found is not None
    assert float(found) == pytest.approx(approximate, rel=1e-14)
