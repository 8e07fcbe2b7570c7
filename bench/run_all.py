"""All experiments, one after the other, then the report: `python bench/run_all.py`.

Finished runs are kept, so an interrupted run continues where it stopped when it is called again. To
measure again, name an empty folder with --results or remove the files `*_runs.json`. With --quick,
those that take minutes even then are left out.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter

import certificates
import cluster_bits
import default_walks
import defaults
import multiclass
import peers
import penalties
import posterior
import recsys
import refit_comparison
import report
import search
import sizes
import stress
import subproblem
import tables

EXPERIMENTS = (
    subproblem, multiclass, penalties, refit_comparison, search, recsys, peers, defaults,
    sizes, default_walks, tables, stress, cluster_bits,
)  # fmt: skip
LONG = (posterior, certificates)


def main() -> None:
    argv = sys.argv[1:]
    if "-h" in argv or "--help" in argv:
        print(f"{__doc__}\nThe options are those of every experiment:\n")
        subproblem.main(argv)
    with tempfile.TemporaryDirectory() as place:
        if "--quick" in argv and "--results" not in argv:
            argv += ["--results", str(Path(place) / "results")]
        run(argv)


def run(argv: list[str]) -> None:
    begun = perf_counter()
    experiments = EXPERIMENTS if "--quick" in argv else EXPERIMENTS + LONG
    for number, experiment in enumerate(experiments, 1):
        title = experiment.__doc__.splitlines()[0]
        print(f"\n[{number}/{len(experiments)}] {title}\n", flush=True)
        experiment.main(argv)
    report.main(argv)
    print(f"{(perf_counter() - begun) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
