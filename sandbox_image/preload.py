"""What every call finds already imported, so that it pays milliseconds and not a second."""

from __future__ import annotations

import atexit
import gc
import importlib
import linecache
import random

from sandbox_image.pages import gather_pages

MODULES = [
    *("ast", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions"),
    *("functools", "heapq", "itertools", "json", "math", "operator", "random", "re"),
    *("statistics", "string", "textwrap", "threading", "time", "traceback", "typing"),
    *("numpy", "numpy.linalg", "numpy.random", "sympy", "sympy.abc", "mpmath"),
    *("scipy", "scipy.integrate", "scipy.linalg", "scipy.optimize", "scipy.special"),
]


def preload() -> dict[str, str]:
    """Import the scientific stack, warm SymPy's late imports, and settle the heap for forking.

    Returns the versions. The random generators are seeded, so a program prints the same
    numbers whichever supervisor runs it.
    """
    for name in MODULES:
        importlib.import_module(name)
    import numpy
    import scipy
    import sympy
    from sympy.core.random import seed as seed_sympy

    _warm_sympy()
    numpy.random.seed(0)
    random.seed(0)
    seed_sympy(0)
    linecache.clearcache()
    # The libraries' own exit handlers are not the program's; a call runs only its own.
    atexit._clear()
    gc.collect()
    gc.freeze()  # a child's collector then leaves the shared pages alone
    gc.disable()
    gather_pages()
    return {
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "sympy": sympy.__version__,
    }


def _warm_sympy() -> None:
    """Use what people use most, because SymPy imports much of itself at first use."""
    import sympy

    x, n = sympy.symbols("x n")
    sympy.solve(x**2 - 5 * x + 6, x)
    sympy.solve([x + n - 3, x - n - 1], [x, n])
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)
    sympy.integrate(x * sympy.exp(-x), (x, 0, 1))
    sympy.limit(sympy.sin(x) / x, x, 0)
    sympy.summation(n, (n, 1, 10))
    sympy.factorint(1001)
    sympy.isprime(1009)
    sympy.expand((x + 1) ** 3)
    sympy.factor(x**3 - 1)
    sympy.diff(sympy.log(x), x)
    sympy.Matrix([[1, 2], [3, 4]]).det()
    sympy.nsimplify("0.5", rational=True)
    str(sympy.N(sympy.sqrt(2), 10))
