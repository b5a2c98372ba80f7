"""HumanEval: tests in one process, the model's code in another that cannot see them."""
