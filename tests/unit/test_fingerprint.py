"""The code fingerprint: blind to comments and docstrings, sensitive to all else."""

from pathlib import Path

import pytest

from training import fingerprint
from training.fingerprint import code_fingerprint, import_closure

MODULE = '''"""Doc."""
import training.b

X = 1
"""Said about X."""

def f(a: int) -> int:
    """Doc."""
    from training.c import g
    return g(a) + 1  # comment
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "training"
    folder.mkdir()
    monkeypatch.setattr(fingerprint, "PACKAGE", folder)
    for name, text in {"a": MODULE, "b": "Y = 1\n", "c": "g = int\n", "d": "Z = 1\n"}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def digest_after(package: Path, name: str, old: str, new: str) -> str:
    path = package / f"{name}.py"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    fingerprint.code_fingerprint.cache_clear()
    fingerprint._tree.cache_clear()
    fingerprint._normalised.cache_clear()
    return code_fingerprint("training.a")


def test_closure_follows_imports_inside_functions(package: Path) -> None:
    assert import_closure("training.a") == {"training.a", "training.b", "training.c"}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a", "# comment", "# another"),
        ("a", '    """Doc."""', '    """Longer."""'),
        ("a", '"""Said about X."""', '"""Said more."""'),
        ("a", "X = 1", "X   =   (1)"),
        ("a", "    return", "\n\n    return"),
        ("d", "Z = 1", "Z = 2"),
    ],
)
def test_what_does_not_count(package: Path, name: str, old: str, new: str) -> None:
    before = code_fingerprint("training.a")
    assert digest_after(package, name, old, new) == before


@pytest.mark.parametrize(
    ("name", "old", "new"), [("a", "+ 1", "+ 2"), ("b", "Y = 1", "Y = 2"), ("c", "int", "abs")]
)
def test_what_counts(package: Path, name: str, old: str, new: str) -> None:
    before = code_fingerprint("training.a")
    assert digest_after(package, name, old, new) != before


def test_stages_do_not_see_each_others_code() -> None:
    assert "training.stages.executor" not in import_closure("training.stages.task_pool")
    assert "training.algorithms.adpo" not in import_closure("training.stages.task_pool")
