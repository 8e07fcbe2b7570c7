"""Python in a fresh process, for what is decided at import, by a fork or by a crash."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# For the code of a process on Linux: its memory in bytes, without mapped files.
ANONYMOUS = """
import ctypes, gc

def anonymous():
    # What was freed goes back to the system first, so that it does not count on a busy machine.
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("Anonymous"))
"""


def run_python(code, env=None, *, arrays=False, timeout=60):
    """Run `code` and return what it printed, or with `arrays` what it saved to {out!r}.

    Fails unless the process exits normally, so a crash or a hang fails the test.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.npz")
        if arrays:
            code = code.format(out=out, tests=str(Path(__file__).parent))
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **(env or {})},
            cwd=folder, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
        if arrays:
            with np.load(out) as saved:
                return dict(saved)
        return done.stdout.strip()
