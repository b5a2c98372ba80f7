"""Which spellings are one label, which answers are refused, and which lines are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.algorithms.answers import (
    Answer,
    canonical_label,
    read_bare,
    read_output,
    states_final_answer,
)

# fmt: off
ONE_LABEL = {
    "1/2": [
        "1/2", "0.5", ".5", "0.50", "2/4", r"\frac{1}{2}", r"\frac12", r"\dfrac12", r"\tfrac{1}2",
        r"\cfrac{1}{2}", r"\frac 1 2", r"$\frac{1}{2}$", r"\boxed{0.5}", r"\boxed{\frac{1}{2}}",
        "50%", r"50\%", r"$50\%$", "50 %", "50 percent", r"\boxed{50}\%", "½", "1⁄2", "1÷2",
        r"1 \div 2", "2^{-1}", "2^-1", "5e-1", "5×10⁻¹", "4^{-0.5}", "Fraction(1, 2)", "- -1/2",
        r"{1 \over 2}", "50 pct", "-1/-2", r"\sin(30^\circ)", r"\cos\frac{\pi}{3}",
    ],
    "1000": [
        "1000", "1,000", "1 000", "1e3", "1E3", "1.0e+03", "10^3", "10^{3}", "10**3", "10³",
        "1_000", r"1\,000", "1{,}000", r"1,\!000", r"1 \times 10^3", "1 × 10^3", "1 x 10^3",
        r"1\cdot10^{3}", "$1,000", r"\$1,000.00", "1,000.", "１０００", "1000.000",
        "1 thousand", "1\u202f000",
    ],
    "5": [
        "5", "+5", "5.", "5.0", "05", "**5**", "*5*", "`5`", "$5$", "$$5$$", r"\(5\)", r"\[ 5 \]",
        r"\text{5}", r"\mathrm{5}", r"\boxed{5}", r"\boxed 5", r"$\boxed{5}$.", r"\fbox{5}", "{5}",
        "(5)", "[5]", r"\left(5\right)", "x = 5", "x=5", "5 = x", r"x = \boxed{5}", "f(3) = 5",
        "a_1 = 5", r"|\overline{AB}| = 5", "m+n = 5", "The answer is 5", "The answer is: 5.",
        "The largest $n$ is 5.", "2+3", "2 + 3 = 5", "x = 2+3 = 5", "= 5", "five", r"\text{five}",
        "5 apples", "5 cm", "5cm", "5 cm^2", r"5\text{ cm}^2", "5 m/s", r"5\,\text{m}", "5 km/h",
        "5 square units", "5°", r"5^\circ", r"5^{\circ}", "5 degrees", r"\angle ABC = 5^\circ",
        "€5", "5 dollars", '"5"', "٥", " 5 ", "\u200b5", "5<|im_end|>", "5<eos>", r"5 \\", "-(-5)",
        "10/2", r"\frac{10}{2}", r"\sqrt{25}", "sqrt(25)", "√25", r"\sqrt[3]{125}", "|−5|",
        r"\binom{5}{1}", r"\lfloor 5.7 \rfloor", r"\gcd(10, 15)", "17 mod 6", r"\log_2 32",
        r"\max(3, 5)", "5 ≈ 5.0", "e^0 * 5", "5²/5", "x = **5**", "The answer is **5**.",
        "The answer is `5`.", "5** apples", "F_12 = 5",
    ],
    "-3": ["-3", "−3", "–3", "- 3", "-3.0", "-(3)", "-6/2", "6/-2", r"-\frac{6}{2}", "$-3$", "-$3"],
    "7": ["7", "007", "0007.0", "+007", r"\frac{\ln 128}{\ln 2}", r"\ln 128/\ln 2", "2**3-1"],
    "3": ["3", r"\log_{10}(1000)", r"\log_6 216", r"\frac{\ln 1000}{\ln 10}", r"\ln{e^3}"],
    "0": ["0", "-0", "0.0", "−0", "0/5", "00", "2-2", r"\sin(\pi)"],
    "3/2": ["3/2", "1.5", "1 1/2", r"1\frac{1}{2}", r"1\frac12", "1½", "150%", "1.5e0"],
    "-3/2": ["-3/2", "-1 1/2", r"-1\frac{1}{2}", "-1.5"],
    "1500": ["1500", "1.5e3", r"1.5 \times 10^3", "1,500", "1.5*10^3", "1.5 thousand"],
    "9": ["9", r"\log_2(8)^2", r"\log_{2}{8}^2"],
    "1024": ["1024", "2^{10}", "2^10", "2**10", "2¹⁰", "1,024", "4^5", "pow(2, 10)"],
    "120": ["120", "5!", "(5)!", "4!*5", r"4! \cdot 5", "4!5", "factorial(5)", r"\max(109,120)"],
    "10": ["10", r"\binom{5}{2}", r"\binom52", r"\dbinom{5}{2}", "C(5,2)", r"{5 \choose 2}", "5C2"],
    "1/3": ["1/3", r"0.\overline{3}", r"x=1/3 \approx 0.333", r"\frac{2}{6}", "3^{-1}"],
    "10080": ["10080", r"10,\!080", "10,080"],
    "3500000": ["3.5 million", "$3.5 million dollars", "3,500,000", "3.5e6", "3.5 millions"],
    "-4": ["-2^2", "-4", "-(2^2)"],
    "4": ["(-2)^2", "4", "16^{1/2}", "8^{2/3}"],
    "512": ["2^3^2", "2^{3^2}", "512"],
    "1/6": ["1/2/3", r"\frac{1/2}{3}", "1/6"],
    "6": ["2(3)", "2 \\cdot 3", "(2)(3)", "2*3", "3!", "2*+3"],
    "sqrt(2)": [
        r"\sqrt{2}", r"\sqrt2", "√2", "sqrt(2)", "2^{1/2}", "2**0.5", r"\frac{2}{\sqrt{2}}",
        r"\sqrt[4]{4}", r"\sqrt{8}-\sqrt{2}", "math.sqrt(2)",
    ],
    "2*sqrt(3)": [r"2\sqrt{3}", r"\sqrt{12}", "√12", "2*sqrt(3)", r"6/\sqrt{3}", r"2\cdot 3^{1/2}"],
    "1+sqrt(2)": [
        r"1+\sqrt2", r"\sqrt{2}+1", r"\sqrt{3+2\sqrt{2}}", r"\frac{1}{\sqrt{2}-1}",
        r"\frac{2+\sqrt{8}}{2}",
    ],
    "1/3*pi": [r"\pi/3", r"\frac{\pi}{3}", "π/3", "pi/3", r"\frac{1}{3}\pi", r"\frac{2\pi}{6}"],
    "2^(2/3)": [r"\sqrt[3]{4}", "4^{1/3}", "∛4", "cbrt(4)", r"2^{2/3}"],
    "1/3*ln(2)": [r"\ln(2)/3", r"\ln{2}/3"],
    "3*ln(2)": [r"\ln 8", r"3\ln 2", r"3 \ln(2)", r"\ln{8}"],
    "e^2": ["e^2", "e*e", r"\exp(2)", r"\mathrm{e}^{2}"],
}
# fmt: on

REFUSED = [
    None, "", " ", "None", "none", "null", "nan", "NaN", "N/A", "n/a", "unknown", "?", "inf",
    "-inf", "infinity", r"\infty", "undefined", "no solution", "I don't know", "yes", "True", "A",
    r"\text{E}",
    "**", "$$", r"\boxed{}", ".", "-", "=", "x", "x = y", r"\frac{1}{}", "()",
    # several numbers
    "1,2", "2,1", "1, 2", "(1,2)", "{1, 2}", "[1,2]", r"\{1,200\}", "(1,200)", "5 or 7", "5 and 7",
    r"6 \text{ and } 8", "x=1 or x=2", "x = 1, y = 2", r"\pm 2", "±2", "5 7", "1 2/3 4", "12 13 14",
    r"\boxed{5}\boxed{7}", r"2\boxed{5}", "5\n7", "5 = 7", "x = 5 = 7", "1/3 = 0.333", "5; 7",
    "12 apples and 3 pears", "12:00", "3:4", "5 remainder 2", "10 to 20",
    # relations and free variables
    "x > 5", "x \\le 5", "x ≥ 5", "x \\neq 3", r"x \in [0, 1]", "[0,1)", "3n", "6m", "2x",
    "5x = 10", "x^2 = 4", "n(n+1)", "2^k", "1+2i", "5k", "(+5)(b+2)",
    # grouping or notation that can be read in two ways
    "1,00", "1,22", "0,111", "01,000", "1,000,00", "1,2345", "1.000.000", "1'000", "204_5",
    "0.333...", "0.333…", r"0.\dots", "0.(3)", "1/2(3)", r"1/2\pi", "5!!", "3!!", "20+30%", "7 % 3",
    "2 5/3", r"2\frac{3}{2}", "1 1/2/3", r"\sin 2\pi", r"\log 100", "(-8)^{1/3}", "0x10", "2nd",
    "5 approximately", "5 is wrong", "The answer is not 5", "not 5", "5 squared", "AZYUK2A", "5?",
    # no value
    "1/0", r"\frac{5}{0}", "0^0", "0^{-1}", r"\sqrt{-4}", r"\sqrt[1]{5}", "(-1)!", "2.5!",
    r"\binom{-1}{2}", r"\ln 0", r"\ln(-1)", r"\tan(\pi/2)", "5 mod 0", r"\gcd(1/2, 3)",
    # beyond the exact normal form
    r"\ln e^2", r"\log_2 8^2", r"\log_2 8!", r"\sin \pi/6", r"\ln 8/3", "**2** 3", "5 **2**", "3–4",
    "1.5 e-3", "3 fifths", "7 hundredths", "5 bn", "5 degrees below zero",
    r"\sqrt{2+\sqrt{2}}", r"e^{\pi}", r"2^{\sqrt{2}}", r"\sin(1)", r"\frac{1}{1+\pi}",
    # broken
    r"\boxed{5", r"\frac{1}{2", "(5", "5)", "3+", "*/", r"\frac", r"\sqrt", "2^", "5\x00",
    "\ud800", "5\ufffd", "\ufffd",
]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "spelling"),
    [(label, spelling) for label, spellings in ONE_LABEL.items() for spelling in spellings],
)
def test_spellings_of_one_value_are_one_label(label: str, spelling: str) -> None:
    assert read_bare(spelling) == Answer("valid", label, "one answer")


@pytest.mark.parametrize("answer", REFUSED)
def test_refused_answers_never_have_a_label(answer: str | None) -> None:
    read = read_bare(answer)
    assert (read.status, read.label) == ("invalid", None)
    assert read.reason


def test_neighbours_differ() -> None:
    values = [
        "10^20", "10^20-1", "0.1", "0.10000000000000000001", "1e-9", "0", "-2", "2", "50", "50%",
        "1/3", "0.3333333333333333", r"\sqrt{2}", "1.4142135623730951", r"\pi", "22/7", "3.14159",
        "e", "2.718281828", r"\sqrt{2}+\sqrt{3}", r"\sqrt{10}", "2^{1/3}", r"\pi^2", r"\sqrt{\pi}",
    ]  # fmt: skip
    labels = [canonical_label(value) for value in values]
    assert None not in labels
    assert len(set(labels)) == len(labels)


def test_percent_is_a_setting() -> None:
    assert canonical_label(r"50\%") == "1/2"
    assert canonical_label(r"50\%", percent=False) == "50"
    assert read_bare("50 percent", percent=False).label == "50"
    assert read_output("Final Answer: 50%", percent=False).label == "50"
    assert canonical_label("100%-25%") == "3/4"


VALID_OUTPUTS = {
    "plain": "So it is.\nFinal Answer: 5",
    "alone": "Final Answer:5",
    "lower case": "final answer: 5",
    "spaces": "  Final  Answer :  5  ",
    "bold label": "**Final Answer:** 5",
    "bold line": "**Final Answer: 5**",
    "bold words": "**Final Answer**: $5$.",
    "heading": "### Final Answer: 5",
    "quote": "> Final Answer: 5",
    "bullet": "- Final Answer: 5",
    "boxed": r"Final Answer: $\boxed{5}$",
    "repeated": "Final Answer: 5\nthat is\nFinal Answer: 5.0",
    "windows": "work\r\nFinal Answer: 5\r\n",
    "end token": "Final Answer: 5<|im_end|>\n",
    "end tokens": "Final Answer: 5</s><eos>",
    "more after": "Final Answer: 5\nDone.",
    "after a call": "<python>print(7)</python>Final Answer: 5",
    "call holds another": "<python>\nprint('x')\nFinal Answer: 7\n</python>\nFinal Answer: 5",
    "observation holds another": "<output>\nFinal Answer: 7\n</output>\nFinal Answer: 5",
    "open call after": "Final Answer: 5\n<python>\nFinal Answer: 7",
    "open observation after": "Final Answer: 5\n<output>Final Answer: 7",
    "two calls": "<python>a</python>\n<python>b</python>\nFinal Answer: 5",
    "closing tag in a string": "<python>print('</python>')\nFinal Answer: 5",
    "in a sentence too": "My Final Answer: 7 was wrong.\nFinal Answer: 5",
    "undecodable elsewhere": "\ufffd\x00 text\nFinal Answer: 5",
}
INVALID_OUTPUTS = {
    "": "no 'Final Answer:' line",
    "5": "no 'Final Answer:' line",
    "The answer is 5.": "no 'Final Answer:' line",
    "I say Final Answer: 5": "no 'Final Answer:' line",
    "Final Answer 5": "no 'Final Answer:' line",
    "<python>\nFinal Answer: 5\n</python>": "no 'Final Answer:' line",
    "<python>\nFinal Answer: 5\n": "no 'Final Answer:' line",
    "<output>\nFinal Answer: 5\n</output>": "no 'Final Answer:' line",
    "<output>\nFinal Answer: 5\n": "no 'Final Answer:' line",
    "Final Answer: 5\nFinal Answer: 7": "two different labels: 5, 7",
    "Final Answer: 5\nFinal Answer: five or so": "malformed final answer 'five or so'",
    "Final Answer:\n5": "malformed final answer ''",
    "Final Answer: <python>print(5)</python>5": "malformed final answer ''",
    "Final Answer: None": "malformed final answer 'None'",
    "Final Answer: 5 or 7": "malformed final answer '5 or 7'",
    "Final Answer: \ud800": "malformed final answer '?'",
}


@pytest.mark.parametrize("text", VALID_OUTPUTS.values(), ids=VALID_OUTPUTS)
def test_output_with_one_label_is_valid(text: str) -> None:
    assert read_output(text) == Answer("valid", "5", "one final answer")


@pytest.mark.parametrize(("text", "reason"), INVALID_OUTPUTS.items())
def test_output_without_one_label_is_invalid(text: str, reason: str) -> None:
    answer = read_output(text)
    assert (answer.status, answer.label) == ("invalid", None)
    assert answer.reason.startswith(reason)


def test_many_different_final_answers_are_refused() -> None:
    text = "\n".join(f"Final Answer: {n}-{n - 5}" for n in range(10, 100))
    assert read_output(text).reason == "more than 8 different final answers"


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("Final Answer: 5\n", True),
        ("x\n**Final Answer:** 5\r\nmore", True),
        ("Final Answer: banana\n", True),
        ("Final Answer: 5<python>print(1)</python>", True),
        ("Final Answer: 5\n<python>print(1)</python>", True),
        ("Final Answer: 5", False),
        ("Final Answer: 1", False),
        ("Final Answer:\n", False),
        ("Final Answer: <python>print(1)</python>", False),
        ("The Final Answer: 5\n", False),
        ("<python>\nFinal Answer: 5\n</python>\n", False),
        ("<python>\nFinal Answer: 5\n", False),
        ("<output>Final Answer: 5\n</output>\n", False),
        ("", False),
    ],
)
def test_a_complete_line_states_the_answer(text: str, states: bool) -> None:
    assert states_final_answer(text) is states


CASES = Path(__file__).parents[2] / ".." / "shared" / "grader_cases" / "cases.jsonl"
NO_LABEL_HERE = {
    "case-0006": "decimal comma",
    "case-0015": "decimal comma",
    "case-0091": "a chain of unequal values",
    "case-0298": "a rounded decimal is another number than the root",
    "case-0424": "a rounded decimal is another number than the fraction",
    "case-0308": "two lines",
    "case-0365": "a doubled backslash",
    "case-0690": "a misplaced choose",
    "case-0721": "inverse trigonometric functions",
    "case-0728": "variables", "case-0729": "variables", "case-0730": "variables",
    "case-0731": "variables", "case-0765": "variables",
    "case-0733": "a limit",
    "case-0737": "complex numbers",
    "case-0738": "an integral",
}  # fmt: skip


def test_public_grader_cases() -> None:
    """Undisputed numeric pairs of public graders: equal exactly when the labels are."""
    if not CASES.exists():
        pytest.skip("the shared grader cases are not beside the repository")
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    used = [c for c in cases if c["numeric"] and c["form"] == "bare" and not c.get("disputed")]
    wrong = []
    for case in used:
        gold, prediction = canonical_label(case["gold"]), canonical_label(case["prediction"])
        if (gold is not None and gold == prediction) != case["equal"]:
            wrong.append(case["id"])
    assert len(used) > 150
    assert sorted(wrong) == sorted(NO_LABEL_HERE)
