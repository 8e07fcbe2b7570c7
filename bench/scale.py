"""What rows in shards cost: against rows in memory, with their number, on a cluster.

    python bench/scale.py --quick                   # 2e5 rows: does it run?
    python bench/scale.py --rows 1e6 1e7            # passes, memory, writing, a whole fit
    python bench/scale.py --rows 1e7 --no-fit --dask

Ratings are planted (`planted.py`): 4 outputs, an ordinal factorization machine with linear terms.
Ratios are medians of passes that take turns in one process. Results go to `results/scale.json`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from planted import Planted, Ratings

from fastpoly import Design, Shards, conditional_gradient, write_shards
from fastpoly.rows import ShardDesign
from fastpoly.state import Model

LEVELS = np.arange(5)
SIGNS = np.where(LEVELS[:, None] <= np.arange(4), 1.0, -1.0)
HOW = {"activation": "anova", "fit_lower": "explicit"}
RESULTS = Path(__file__).parent / "results" / "scale.json"


def anonymous() -> float:
    """Bytes of memory that are not files (Linux)."""
    with open("/proc/self/smaps_rollup") as file:
        return next(1024.0 * int(x.split()[1]) for x in file if x.startswith("Anonymous"))


def seconds(step: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def sums_of(design: Any, y: Any) -> Any:
    return design.sums(design.problem(y, loss="binary_logistic"))


def random_model(d: int, k: int) -> Model:
    rng = np.random.default_rng(0)
    H, V = 0.1 * rng.standard_normal((k, d)), rng.standard_normal((k, 4))
    return Model(H, V, np.zeros(4), 0.1 * rng.standard_normal((d, 4)))


def passes(sums: Any, model: Model) -> dict[str, Callable[[], Any]]:
    """The two passes that a fit mostly consists of, after the gradients of a model."""
    k, (d, m) = len(model.H), model.linear.shape
    x = np.concatenate([part.ravel() for part in model])
    g, B = np.empty_like(x), np.ones((d, m))
    gamma = sums.gradient(model).gamma
    return {
        "value and gradient": lambda: sums.value_grad_packed(x, k, g),
        "mat-vecs": lambda: gamma.matvecs(B),
    }


def in_memory(shards: Shards) -> tuple[Any, Any]:
    """X and y of all shards."""
    indices = np.vstack([shard.arrays["indices"] for shard in shards])
    n = len(indices)
    arrays = np.ones(2 * n), indices.ravel(), 2 * np.arange(n + 1)
    X = sp.csr_array(arrays, shape=(n, shards.n_features))
    return X, SIGNS[np.concatenate([shard.targets() for shard in shards])]


def against_memory(shards: Shards, k: int, repetitions: int, threads: int) -> dict[str, float]:
    """Seconds per pass of shards over those of a Design, by pass."""
    X, Y = in_memory(shards)
    model = random_model(shards.n_features, k)
    here = passes(sums_of(Design(X, **HOW, n_threads=threads), Y), model)
    there = passes(sums_of(ShardDesign(shards, **HOW, n_threads=threads), SIGNS), model)
    ratios = {}
    for name in here:
        turns = [(seconds(there[name]), seconds(here[name])) for _ in range(repetitions)]
        a, b = np.median(turns, axis=0)
        ratios[name] = a / b
        print(f"  {name}, {threads} thread(s): shards {a:.4f} s, memory {b:.4f} s, {a / b:.3f}x")
    return ratios


def cost(shards: Shards, k: int, repetitions: int) -> dict[str, float]:
    """Seconds per pass and bytes per row, which should be the same for any number of rows."""
    before = anonymous()
    sums = sums_of(ShardDesign(shards, **HOW, n_threads=None), SIGNS)
    steps = passes(sums, random_model(shards.n_features, k))
    for step in steps.values():
        step()
    found = {"bytes per row": (anonymous() - before) / shards.n_samples}
    for name, step in steps.items():
        per_row = np.median([seconds(step) for _ in range(repetitions)]) / shards.n_samples
        found[f"{name}, ns per row"] = 1e9 * per_row
    print("  " + ", ".join(f"{name}: {value:.1f}" for name, value in found.items()))
    return found


def writing(shards: Shards, folder: Path) -> dict[str, float]:
    """Rows per second of `write_shards` from parquet, on one thread; bytes per row on disk."""
    import pyarrow as pa
    from pyarrow import parquet

    indices = np.vstack([shard.arrays["indices"] for shard in shards])
    stars = np.concatenate([shard.targets() for shard in shards])
    path = folder / "ratings.parquet"
    columns = {"user": indices[:, 0], "item": indices[:, 1], "stars": stars}
    parquet.write_table(pa.table(columns), path)
    batches = parquet.ParquetFile(path).iter_batches(batch_size=2**18, use_threads=False)
    out = folder / "again"
    begun = time.process_time()
    write_shards(out, batches, one_hot=["user", "item"], target="stars")
    rate = len(stars) / (time.process_time() - begun)
    size = sum(f.stat().st_size for f in out.iterdir()) / len(stars)
    print(f"  write_shards: {rate:.3g} rows per second of a core, {size:.2f} bytes per row")
    return {"rows per second": rate, "bytes per row": size}


def fit(shards: Shards, planted: Planted, held: Ratings, options: Any) -> dict[str, Any]:
    """A whole fit, judged by the log-loss of the truth on rows held out."""
    design = ShardDesign(shards, **HOW)
    begun, before = time.perf_counter(), anonymous()
    most, state = before, None
    for state in conditional_gradient(
        design, SIGNS, loss="binary_logistic", alpha=options.alpha,
        n_components=options.components, tol=0.05, random_state=0,
    ):  # fmt: skip
        most = max(most, anonymous())
        print(f"    {time.perf_counter() - begun:8.1f} s  {state.n_components} vectors, "
              f"objective {state.objective:.6g}", flush=True)  # fmt: skip
    taken = time.perf_counter() - begun
    users, items = (shards.categories(name) for name in ("user", "item"))
    known = np.isin(held.user, users) & np.isin(held.item, items)
    held = Ratings(*(column[known] for column in held))
    columns = np.searchsorted(users, held.user), len(users) + np.searchsorted(items, held.item)
    n = len(held.user)
    arrays = np.ones(2 * n), np.column_stack(columns).ravel(), 2 * np.arange(n + 1)
    X = sp.csr_array(arrays, shape=(n, shards.n_features))
    rows = Design(X, **HOW)
    outputs = rows.outputs(state.H, state.V) + state.intercept + rows.linear.outputs(state.linear)
    expected = 5 - (1 / (1 + np.exp(-outputs))).sum(axis=1)
    found = {
        "seconds": taken, "bytes": most - before, "vectors": state.n_components,
        "log-loss": planted.log_loss(outputs, held.stars),
        "log-loss of the truth": planted.log_loss(planted.true_outputs(held.score), held.stars),
        "rmse": float(np.sqrt(np.mean((expected - held.stars) ** 2))),
    }  # fmt: skip
    print("  " + ", ".join(f"{name}: {value:.5g}" for name, value in found.items()))
    return found


def on_dask(shards: Shards, k: int, repetitions: int) -> dict[str, float]:
    """Latency of a pass over next to nothing, and speed against as many threads."""
    from distributed import Client, LocalCluster

    from fastpoly.dask import on_cluster

    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(**how) as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as d,
    ):
        tiny = write_shards(d, [(np.eye(2), [0, 1])], rows_per_shard=1)
        empty = ShardDesign(on_cluster(tiny, client))
        sums = empty.sums(empty.problem())
        model = sums.empty_model()
        waits = [seconds(lambda: sums.value(model)) for _ in range(200)][20:]
        found = dict(zip(("p50 ms", "p95 ms"), 1e3 * np.percentile(waits, [50, 95]), strict=True))
        model = random_model(shards.n_features, k)
        there = passes(sums_of(ShardDesign(on_cluster(shards, client), **HOW), SIGNS), model)
        here = passes(sums_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS), model)
        for name in here:
            turns = [(seconds(here[name]), seconds(there[name])) for _ in range(repetitions)]
            a, b = np.median(turns, axis=0)
            found[f"{name}: speed of 2 workers over that of 2 threads"] = a / b
    print("  " + ", ".join(f"{name}: {value:.3g}" for name, value in found.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--quick", action="store_true", help="2e5 rows, few repetitions")
    parser.add_argument("--rows-per-shard", type=int, default=2**20)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--alpha", type=float, default=10.0)
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="for the shards; by default a temporary one")
    parser.add_argument("--no-fit", action="store_true")
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.rows_per_shard, options.repetitions = [2e5], 2**15, 3
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for rows in options.rows:
            folder = (options.folder or Path(temporary)) / f"{rows:g}"
            planted = Planted(rows)
            shards, held = planted.write(folder / "shards", options.rows_per_shard)
            print(f"{shards.n_samples} rows, {shards.n_features} features, {len(shards)} shards")
            k, repetitions = options.components, options.repetitions
            found = results[f"{rows:g}"] = {"cost": cost(shards, k, repetitions)}
            if rows <= 2e7:
                found["over memory"] = {
                    t: against_memory(shards, k, repetitions, t) for t in (1, 2)
                }
                found["writing"] = writing(shards, folder)
            if options.dask or options.quick:
                found["dask"] = on_dask(shards, k, repetitions)
            if not options.no_fit:
                found["fit"] = fit(shards, planted, held, options)
            if not options.quick:
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
