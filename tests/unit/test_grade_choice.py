"""Which letter a response chooses, and that a letter found by chance never counts."""

from __future__ import annotations

import pytest

from training.benchmarks.choice import grade_choice, read_choice
from training.benchmarks.schema import GradeStatus, Question


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("Final Answer: C", "C"),
        ("reasoning…\n**Final Answer:** (J)", "J"),
        ("**Final Answer:**\n\nB", "B"),
        (r"Final Answer: \text{B}", "B"),
        ("Final Answer: option C", "C"),
        ("Final Answer: B (the second one)", "B"),
        ("The answer is A.", "A"),
        ("the answer is: **C**", "C"),
        ("The answer is (a)", "A"),
        ("The correct answer is option (B) because of the gradient", "B"),
        ("The correct option is **H. none of these**", "H"),
        ("Answer: D) foo", "D"),
        ("ANSWER: F", "F"),
        (r"The final answer is $\boxed{\text{G}}$.", "G"),
        (r"so \boxed{\text{(C)}}", "C"),
        (r"\boxed{E}", "E"),
        ("Therefore, option C is correct.", "C"),
        ("I think it's (D).", "D"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("C. x = 42", "C"),
        ("The answer is I.", "I"),
        ("Final Answer: I", "I"),
        ("The answer is I because of II", "I"),
        (r"\boxed{\text{I}}", "I"),
        ("Final Answer: C. A small dog", "C"),
        ("Final Answer: C. E. coli", "C"),
        ("Final Answer: (C) and not (D)", "C"),
        ("Final Answer: A (Paris)", "A"),
        ("Final Answer: C - the third", "C"),
        ("### Final Answer\nC", "C"),
        ("**Final Answer**\n\n**(B) foo**", "B"),
        ("**Answer**\n\nC", "C"),
        ("## Answer\nC. foo", "C"),
        ("Answer (C)", "C"),
        ("C. foo\n\nExplanation: bar", "C"),
        ("C\n\nBecause B is too small.", "C"),
        ("Option C: foo", "C"),
        (r"\boxed{\text{Option C}}", "C"),
        (r"\boxed{Option C}", "C"),
        (r"so \boxed C", "C"),
        (r"\fbox{C}", "C"),
        (r"\boxed{(c)}", "C"),
        ("C is the correct answer.", "C"),
        ("Therefore, (C) is the best choice.", "C"),
        ("I choose C.", "C"),
        ("the answer is C but not by much", "C"),
        ("the answer is C by elimination", "C"),
        ("the answer is C for this gas", "C"),
        ("the answer is C in this case", "C"),
        ("the answer is C with 5 %", "C"),
        ("the answer is C if x > 0", "C"),
        ("the answer is C so we stop", "C"),
    ],
)
def test_reads_a_stated_choice(response: str, letter: str) -> None:
    assert read_choice(response, 10)[0] == letter


@pytest.mark.parametrize(
    "response",
    [
        "",
        "I cannot say.",
        "A dog and I went for a walk.",
        "So (C) might be right, or (D).",
        "Option A: foo\nOption B: bar",
        "The answer is a dog",
        "The answer is A1's share",
        "The answer is January 22nd.",
        "The answer is China.",
        "The answer is not (A)",
        "The answer is I think B",
        "A × B = C",
        r"\boxed{C(5,2)}",
        r"\boxed{AB}",
        "Final Answer: A, B",
        "Final Answer: (A) or (B)",
        "Final Answer: C\nso\nFinal Answer: D",
        "<think>The answer is (A).</think> I am not sure.",
        "<python>print('The answer is (A)')</python>\n<output>The answer is (A)</output>",
        "```output\nThe answer is (A)\n```",
        "Final Answer: I'm not sure",
        "Final Answer: I’ll pass",
        "The answer is I'm not sure",
        "Final Answer: I (the assistant) do not know",
        "Final Answer: I, as a model, cannot say",
        "Final Answer: I. do not know",
        "The answer is I - I do not know",
        "The answer is I for one",
        r"\boxed{I'm not sure}",
        "Final Answer: A's share",
        "Final Answer: A$ 5",
        "The answer is A for effort",
        "Answer: A - B = 3",
        "The answer is C.S. Lewis",
        "The answer is C_2",
        "The answer is C*x",
        r"The answer is C \times 2",
        "The answer is C reactive protein",
        "The answer is C is wrong",
        r"\boxed{C,D}",
        r"\boxed{C \text{ or } D}",
        r"The answer is $\boxed{C, \text{ and } D}$.",
        r"\boxed{C} and \boxed{D}",
        r"\boxed{A\cup B}",
        "Final Answer: A; B",
        "Final Answer: (A) (B)",
        "Final Answer: A. B. C.",
        "Final Answer: $C$ or $D$",
        "A. foo\n\nB. bar\n\nC. baz",
        "A\n\nB",
        "## Answer\nA: foo\nB: bar",
        "C. foo is incorrect.\n\nSo it must be another one.",
        "If C is the correct answer, then B is wrong.",
        "I would not choose C.",
        "I is the correct answer to give",
    ],
)
def test_abstains_without_one_stated_choice(response: str) -> None:
    assert read_choice(response, 10)[0] is None


def test_a_repeated_final_answer_is_one_answer() -> None:
    assert read_choice("Final Answer: C\nagain\nFinal Answer: C", 4)[0] == "C"


def test_the_final_answer_line_outranks_earlier_sentences() -> None:
    assert read_choice("At first the answer is (A).\nFinal Answer: B", 4)[0] == "B"


def test_a_final_answer_within_a_line_outranks_sentences_only() -> None:
    response = "The answer is (D). No. So my Final Answer: (C)"
    assert read_choice(response, 4)[0] == "C"
    assert read_choice("Final Answer: (B)\nNot this: my final answer: (C)", 4)[0] == "B"


def test_looser_words_count_only_without_an_answer_sentence() -> None:
    response = "Therefore, (C) is the correct answer. The answer is (F)."
    assert read_choice(response, 10)[0] == "F"


def test_the_first_sentence_counts_when_a_base_model_runs_on() -> None:
    response = "The answer is (D).\n\nQuestion: Which is heavier?\nThe answer is (A)."
    assert read_choice(response, 10)[0] == "D"
    assert read_choice("Final Answer: D\n\nQuestion: and?\nFinal Answer: A", 10)[0] == "D"


def test_a_letter_beyond_the_options_is_read_and_wrong() -> None:
    question = Question("q", "?", "A", choices=("x", "y", "z", "w"))
    verdict = grade_choice(question, "The answer is (J).")
    assert (verdict.prediction, verdict.correct) == ("J", False)
    assert "no option J" in verdict.reason


def test_either_letter_of_equal_choices_is_right() -> None:
    question = Question("q", "?", "C", choices=("8.75", "8.79", "8.75", "8.71"))
    assert grade_choice(question, "Final Answer: A").correct is True
    assert grade_choice(question, "Final Answer: B").correct is False


def test_abstaining_is_wrong_and_counted() -> None:
    verdict = grade_choice(Question("q", "?", "A", choices=("x", "y")), "No idea.")
    assert verdict.correct is False
    assert verdict.status is GradeStatus.UNPARSED
