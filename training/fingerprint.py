"""Code fingerprint of a stage: the syntax trees of everything in ``training`` that it imports.

Comments, docstrings, formatting and positions do not count, so that editing them never costs a
recomputation; any other change of the import closure makes a new identity.
"""

import ast
import contextlib
import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent


@cache
def code_fingerprint(*modules: str) -> str:
    """Fingerprint (sha256 hex) of the import closures of ``training.…`` modules, joined."""
    digest = hashlib.sha256()
    for name in sorted(set().union(*map(import_closure, modules))):
        digest.update(f"{name}\n{_normalised(_path(name))}\n".encode())
    return digest.hexdigest()


def import_closure(module: str) -> set[str]:
    """Names of all modules in ``training`` that a module reaches by import statements."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_imports(_path(name)))
    return seen


def _path(module: str) -> Path:
    base = PACKAGE.parent.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _exists(module: str) -> bool:
    return _path(module).is_file()


@cache
def _tree(path: Path) -> ast.Module:
    return _parse(path.read_text(encoding="utf-8"))


def _parse(text: str) -> ast.Module:
    """``ast.parse``, again where Python before 3.11.8 fails because other threads parse as well."""
    for _ in range(20):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.split(".")[0] == PACKAGE.name and _exists(name)]


@cache
def _normalised(path: Path) -> str:
    tree = _parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert isinstance(body, list)
            node.body = [item for item in body if not _is_text(item)] or [ast.Pass()]
    return ast.dump(tree, include_attributes=False)


def _is_text(node: ast.stmt) -> bool:
    """Docstrings, and the bare strings under a name that document it."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
