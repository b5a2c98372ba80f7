"""Canonical keys of answers: text to exact value to label.

`plain_text` removes typography, `grammar` (with `numerals` and `functions`) reads a closed form,
`value` and `arithmetic` keep it exact, `label` decides what is one number. Use `answers` next door.
"""
