"""No text makes the reader hang, and what it reads of hostile texts is exact all the same."""

from __future__ import annotations

import time

import pytest

from training.algorithms.answers import canonical_label, read_bare, read_output

HANG_SECONDS = 2.0  # each takes a few milliseconds; this only tells a hang from a busy machine

REFUSED = {
    "power tower": "9^{9^{9^9}}",
    "power tower of tens": "10^{10^{10}}",
    "power tower of stars": "9**9**9**9",
    "power tower of ones": "1^{9^{9^9}}",
    "power of a sum": r"(1+\sqrt{2})^{10^{30}}",
    "root of a power": r"\sqrt{2}^{10^{12}}",
    "huge scientific": "1e999999999",
    "huge exponent text": "1e" + "9" * 20_000,
    "tiny scientific": "1e-999999999",
    "huge factorial": "99999999!",
    "factorial just too long": "4000!",
    "huge binomial": r"\binom{100000}{50000}",
    "wide binomial": r"\binom{" + "9" * 3000 + "}{500}",
    "long integer": "9" * 10_001,
    "longer integer": "1" * 100_000,
    "parentheses": "(" * 10_000 + "1" + ")" * 10_000,
    "fractions": r"\frac{1}{" * 2_000 + "2" + "}" * 2_000,
    "roots": r"\sqrt{" * 3_000 + "2" + "}" * 3_000,
    "boxes": r"\boxed{" * 2_000 + "2" + "}" * 2_000,
    "texts": r"\text{" * 2_000 + "2" + "}" * 2_000,
    "bars": "|" * 20_000,
    "braces": "{" * 20_000,
    "backslashes": "\\" * 20_001,
    "stars": "*" * 20_000,
    "dollars": "$" * 20_000,
    "powers": "2^" * 5_000 + "1",
    "sum": "1+" * 10_000 + "1",
    "product": "2*" * 10_000 + "1",
    "product of powers": "2^{10000}*" * 2_000 + "1",
    "sum of fractions": "+".join(f"1/{10**18 + n}" for n in range(600)),
    "sum of roots": "+".join(rf"\sqrt{{{n}}}" for n in range(1, 600)),
    "root of a semiprime": rf"\sqrt{{{(10**12 + 39) * (10**12 + 61)}}}",
    "root of a long number": r"\sqrt{" + "7" * 9_000 + "}",
    "many hard roots": "+".join([rf"\sqrt{{{10**22 + 9}}}"] * 500),
    "conjugates": r"\frac{1}{" + "+".join(rf"\sqrt{{{p}}}" for p in (2, 3, 5, 7, 11, 13)) + "}",
    "spaces": "5" + " " * 20_000 + "6",
    "equality signs": "=" * 20_000,
    "names": "x=" * 10_000 + "5",
    "is": "a is " * 4_000 + "5",
    "estimates": r"\approx " * 2_000 + "5",
    "unit": "5 " + "a" * 20_000,
    "units": "5 " + "a b " * 5_000,
    "bad grouping": "1" + ",000" * 3_000 + ",00",
    "bad spacing": "1" + " 000" * 3_000 + " 00",
    "letters of many": "ﷺ" * 20_000,
    "superscripts": "²" * 20_000,
    "null": "\x00" * 20_000,
    "surrogates": "\ud800" * 20_000,
}
READ = {
    "4300 digits": ("9" * 4_300, "9" * 4_300),
    "4301 digits": ("-" + "9" * 4_301, "-" + "9" * 4_301),
    "9999 digits": ("9" * 9_999, "9" * 9_999),
    "grouped": ("1" + ",000" * 3_000, "1" + "000" * 3_000),
    "scientific": ("1e9000", "1" + "0" * 9_000),
    "inverse": ("1e-9000", "1/1" + "0" * 9_000),
    "repeating": (r"0.\overline{" + "7" * 4_000 + "}", "7/9"),
    "signs": ("-" * 20_000 + "5", "5"),
    "tokens": ("5" + "<eos>" * 4_000, "5"),
    "nested roots": (r"\sqrt{" * 20 + "2" + "}" * 20, "2^(1/1048576)"),
    "trailing spaces": ("5" + " \t" * 10_000 + ".", "5"),
    "one to a power": ("1^{" + "9" * 5_000 + "}", "1"),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_hostile_answers_are_refused_without_hanging(text: str) -> None:
    started = time.thread_time()
    assert read_bare(text).label is None
    assert read_output("Final Answer: " + text).label is None
    assert time.thread_time() - started < HANG_SECONDS


@pytest.mark.parametrize(("text", "label"), READ.values(), ids=READ)
def test_long_answers_are_read_exactly(text: str, label: str) -> None:
    started = time.thread_time()
    assert canonical_label(text) == label
    assert canonical_label(label) == label
    assert time.thread_time() - started < HANG_SECONDS


def test_many_line_breaks() -> None:
    assert canonical_label("5" + "\n" * 20_000 + "6") is None
    assert canonical_label("5" + "\n" * 20_000) == "5"


def test_long_neighbours_differ() -> None:
    assert canonical_label("1e4300") != canonical_label("9" * 4_300)
    assert canonical_label("2^{14000}-1") != canonical_label("2^{14000}")
    assert canonical_label("2^{14000}+1-1") == canonical_label("4^{7000}")
    assert canonical_label("1000!/999!") == "1000"


@pytest.mark.parametrize(
    "text",
    [
        "Final Answer: 5\n" * 20_000,
        "\n".join(f"Final Answer: {n}" for n in range(20_000)),
        "<python>" * 50_000 + "Final Answer: 5",
        "<output>" * 50_000,
        "</python>\n" * 50_000,
        "Final Answer" * 20_000,
        "Final Answer:" + " " * 200_000,
        "*" * 200_000 + "Final Answer: 5 or 7",
        ("<python>x</python>\n" * 10_000),
        "\r" * 200_000,
    ],
    ids=range(10),
)
def test_hostile_outputs_do_not_hang(text: str) -> None:
    started = time.thread_time()
    answer = read_output(text)
    assert time.thread_time() - started < HANG_SECONDS
    assert answer.label in (None, "5")
