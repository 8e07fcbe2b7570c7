"""Test the installed package, never the uncompiled source tree beside the tests.

`python -m pytest` puts the working directory first on `sys.path`; taking the project root off it
makes `import fastpoly` find the installed (or editable) package whichever way pytest is started.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
