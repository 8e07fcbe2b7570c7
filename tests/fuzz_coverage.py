"""One entry of `fuzzing.py`, with inputs that atheris chooses by the code that they reach.

    pip install atheris && python tests/fuzz_coverage.py load_model --seconds 60

Ends with an error at the first input that gives neither a correct result nor a clear error.
"""

import argparse
import sys

import atheris

with atheris.instrument_imports(include=["fastpoly", "zipfile"]):
    import fuzzing

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("entry", choices=fuzzing.ENTRIES)
parser.add_argument("--seconds", type=int, default=60)
options = parser.parse_args()
test = fuzzing.test_of(options.entry, 1)
limits = [f"-max_total_time={options.seconds}", "-max_len=4000", "-rss_limit_mb=4096"]
atheris.Setup([sys.argv[0], *limits], test.hypothesis.fuzz_one_input)
atheris.Fuzz()
