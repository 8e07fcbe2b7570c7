"""Compiled kernels. Those with an installed .pxd file can also be cimported from Cython."""

from importlib.util import find_spec

if find_spec("fastpoly.kernels.runtime") is None:
    raise ImportError(
        f"fastpoly is not compiled in {__path__[0]}. Python found the source tree, most likely "
        "because it is the working directory. Install it with `pip install .` and start Python "
        "elsewhere or with `python -P`, or use an editable install: `pip install -e .`"
    )
