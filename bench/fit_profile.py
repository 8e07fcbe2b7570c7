"""Where the seconds of a fit go: `FASTPOLY_DATA=folder python bench/fit_profile.py`.

It prints shares of the time of fits to the objectives of `fit.py`, by the outermost of these parts,
from `cProfile` on one thread. The section of bench/README.md on missed goals uses them.
"""

import cProfile
import pstats

import fit_worker
from experiment import table

from fastpoly import Design, conditional_gradient

# data: (objective to reach, options)
FITS = {
    "segment": (1.01 * 124.7153, {"alpha": 1.0}),
    "satimage": (1.001 * 421.8757, {"alpha": 1.0}),
    "letter": (2440.0, {"alpha": 1.0}),
    "ml-100k": (73493.0, {"alpha": 4.0, "loss": "binary_logistic", "n_components": 30}),
    "ml-1m": (700471.0, {"alpha": 6.0, "loss": "binary_logistic", "n_components": 30}),
}
# part: (file, function)
PARTS = {
    "fused pass": ("block.py", "value_grad"),
    "L-BFGS": ("lbfgs.py", "minimize"),
    "curvature sums": ("rows.py", "curvature"),
    "selection": ("algorithm.py", "select"),
}


def shares(data: str) -> list[str]:
    X, y, m = fit_worker.rows(data, False)
    objective, options = FITS[data]
    ratings = data.startswith("ml-")
    kind = ("anova", {"fit_lower": "explicit"}) if ratings else ("squared", {})
    options = {"n_components": 400, "n_outputs": m, "random_state": 0} | options
    profile = cProfile.Profile()
    with profile:
        design = Design(X, kind[0], n_threads=1, **kind[1])
        for state in conditional_gradient(design, y, **options):
            if state.objective <= objective:
                break
    stats = pstats.Stats(profile)
    seconds = {
        (file.rpartition("/")[2], name): row[3] for (file, _, name), row in stats.stats.items()
    }
    part = {name: seconds.get(key, 0.0) for name, key in PARTS.items()}
    part["L-BFGS"] -= part["fused pass"]  # because it calls the fused pass
    fused = PARTS["fused pass"]
    passes = sum(
        row[0]
        for (file, _, name), row in stats.stats.items()
        if (file.rpartition("/")[2], name) == fused
    )
    cells = [f"{100 * part[name] / stats.total_tt:.0f} %" for name in PARTS]
    return [data, f"{stats.total_tt:.2f} s", str(passes), str(state.n_components), *cells]


def main() -> None:
    rows = [shares(data) for data in FITS if fit_worker.has(data)]
    print(table(["fit", "seconds", "passes", "vectors", *PARTS], rows))


if __name__ == "__main__":
    main()
