"""Valid and malformed inputs for every public function: each gives a correct result or an error.

    pytest tests/test_fuzz.py                    a few thousand inputs
    python tests/fuzzing.py --inputs 100000      the long run; resumes from --progress FILE
    python tests/fuzz_coverage.py load_model     guided by coverage; needs atheris

Each entry is a function that draws its input with hypothesis, calls fastpoly, and asserts what must
be true of the result. An error is a documented exception with a message.
"""

import argparse
import json
import sys
import traceback
import warnings
from pathlib import Path

import fuzz_entries
import fuzz_files
from fuzz_inputs import COUNTS
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

REFUSALS = (ValueError, TypeError)
ENTRIES = {
    entry.__name__: entry
    for entry in (
        fuzz_entries.fit, fuzz_entries.core, fuzz_entries.operators, fuzz_entries.kernels,
        fuzz_entries.refit, fuzz_entries.model, fuzz_entries.metrics, fuzz_entries.search,
        fuzz_files.load_model, fuzz_files.load_checkpoint, fuzz_files.load_encoded,
    )
}  # fmt: skip
# Share of the inputs; a fit costs more than a file.
SHARES = {"fit": 4, "core": 3, "search": 0.2}


def attempt(entry, draw):
    """Try one input for an entry; raise unless it gives a correct result or a documented error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflow, of no convergence: the result shows it
        try:
            entry(draw)
        except REFUSALS as refusal:
            if not str(refusal):
                raise AssertionError("refused without a word") from refusal
            COUNTS.update(("inputs", "refusals"))
        else:
            COUNTS.update(("inputs", "results"))


def test_of(name, inputs, **options):
    """The hypothesis test of an entry."""

    @settings(
        max_examples=inputs, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), print_blob=True, **options,
    )  # fmt: skip
    @given(st.data())
    def test(data):
        attempt(ENTRIES[name], data.draw)

    return test


def long_run(inputs, progress, first=0, batch=200):
    """Run batches of all entries until this many inputs are tried; resume from a file of counts."""
    done, failures = first, []
    if progress and progress.exists():
        saved = json.loads(progress.read_text())
        done, failures = saved["batches"], saved["failures"]
        COUNTS.update(saved["counts"])
    names = [name for name in ENTRIES for _ in range(max(1, int(SHARES.get(name, 1))))]
    while COUNTS["inputs"] < inputs:
        name = names[done % len(names)]
        size = batch if SHARES.get(name, 1) >= 1 else batch // 5
        try:
            seed(done)(test_of(name, size, phases=[Phase.generate, Phase.shrink]))()
        except Exception:  # all kinds are what this is looking for
            failures.append(f"{name}, seed {done}:\n{traceback.format_exc(limit=-6)}")
            print(failures[-1], flush=True)
        done += 1
        if progress:
            saved = {"batches": done, "failures": failures, "counts": COUNTS}
            progress.with_suffix(".tmp").write_text(json.dumps(saved))
            progress.with_suffix(".tmp").replace(progress)
    shown = ", ".join(f"{name} {COUNTS[name]}" for name in ("inputs", "results", "refusals"))
    print(f"{shown}, faults injected {COUNTS['faults']}, failures {len(failures)}")
    return len(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--progress", type=Path, help="a file to resume from")
    parser.add_argument("--first", type=int, default=0, help="first seed, for runs side by side")
    options = parser.parse_args()
    sys.exit(long_run(options.inputs, options.progress, options.first) > 0)


if __name__ == "__main__":
    main()
