"""The measurements of `scale.py`: one function each, from data to a dictionary of figures."""

import ctypes
import gc
import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import scipy.sparse as sp
from planted import Planted, Ratings

from fastpoly import Design, Shards, conditional_gradient, select_basis, write_shards
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.rows import Rows, ShardDesign, as_rows
from fastpoly.state import Model

Figures = dict[str, Any]

LEVELS = np.arange(5)
SIGNS = np.where(LEVELS[:, None] <= np.arange(4), 1.0, -1.0)
HOW = {"activation": "anova", "fit_lower": "explicit"}
COMPONENTS = 10
# For a million planted ratings: the best of 0.3, 1 and 3 on the rows held out. The noise that alpha
# must exceed grows with the root of the number of rows per item.
ALPHA = 3.0


class Data:
    """Planted ratings as shards in a folder, written on first use.

    Parameters
    ----------
    folder : Path
    rows : float
    """

    def __init__(self, folder: Path, rows: float) -> None:
        self.folder, self.rows = folder / f"{rows:g}", rows
        # A user has 14 parameters. Estimated from r rows they cost about 14 / 2r of log-loss,
        # which is 1.3 in all: 3 % with the 160 rows of MovieLens, 0.1 % with 4000 rows. What is
        # left then judges the fit, not the size of the sample.
        self.planted = Planted(rows, rows_per_user=4000.0)
        self.alpha = ALPHA * np.sqrt(rows / 1e6)

    def shards(self) -> Shards:
        held = self.folder / "held.npz"
        if not held.exists():
            # The default, but with shards for all threads, and 16 rows per feature.
            size = max(
                16 * (self.planted.n_users + self.planted.n_items), min(self.rows / 4, 2**20)
            )
            _, rows = self.planted.write(self.folder / "shards", round(size))
            np.savez(self.folder / "part.npz", **rows._asdict())
            os.replace(self.folder / "part.npz", held)  # last, when everything else is there
        return Shards(self.folder / "shards")

    def held(self) -> Ratings:
        with np.load(self.folder / "held.npz") as arrays:
            return Ratings(**arrays)


# --- small tools ---


def log(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')}  {text}", flush=True)


def anonymous() -> float:
    """Bytes of memory that do not belong to mapped files (Linux)."""
    with open("/proc/self/smaps_rollup") as file:
        return next(1024.0 * int(x.split()[1]) for x in file if x.startswith("Anonymous"))


@contextmanager
def watched() -> Iterator[Callable[[], float]]:
    """A function that returns the peak of anonymous memory, beyond that at the beginning."""
    before = most = anonymous()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.1):
            most = max(most, anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most - before
    finally:
        done.set()
        thread.join()


def seconds(step: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    step()
    return clock() - begun


def in_turns(steps: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, Figures]:
    """Median elapsed and CPU seconds of interleaved steps."""
    clocks = time.perf_counter, time.process_time
    found = {name: [] for name in steps}
    for _ in range(repetitions):
        for name, step in steps.items():
            begun = [clock() for clock in clocks]
            step()
            found[name].append([clock() - b for clock, b in zip(clocks, begun, strict=True)])
    return {
        name: dict(zip(("seconds", "cpu"), np.median(turns, axis=0).tolist(), strict=True))
        for name, turns in found.items()
    }


def rows_of(design: Any, y: Any) -> Rows:
    return as_rows(design, y, loss="binary_logistic")


def random_model(d: int) -> Model:
    rng = np.random.default_rng(0)
    H, V = 0.1 * rng.standard_normal((COMPONENTS, d)), rng.standard_normal((COMPONENTS, 4))
    return Model(H, V, np.zeros(4), 0.1 * rng.standard_normal((d, 4)))


def passes(rows: Rows) -> dict[str, Callable[[], Any]]:
    """The two passes that take most of the time of a fit, after the gradients of a model."""
    model = random_model(rows.n_features)
    x = np.concatenate([part.ravel() for part in model])
    g, B = np.empty_like(x), np.ones(model.linear.shape)
    gamma = rows.gradient(model).gamma()
    steps = {
        "value and gradient": lambda: rows.value_grad(x, COMPONENTS, g),
        "mat-vecs": lambda: gamma.matvecs(B),
    }
    for step in steps.values():
        step()
    return steps


def in_memory(shards: Shards) -> tuple[Any, Any]:
    """X and y of all shards."""
    indices = np.vstack([shard.arrays["indices"] for shard in shards])
    n = len(indices)
    arrays = np.ones(2 * n), indices.ravel(), 2 * np.arange(n + 1)
    X = sp.csr_array(arrays, shape=(n, shards.n_features))
    return X, SIGNS[np.concatenate([shard.targets() for shard in shards])]


def movielens(data: Data) -> tuple[Shards, str]:
    """MovieLens 1M as shards, and the source; made up if it is not available or has more rows."""
    small = (round(data.rows), 604, 371) if data.rows < 1e6 else None
    ratings = (not small and datasets.find("ml-1m")) or datasets.stand_in("ml-1m", small)
    table = {"user": ratings.user, "item": ratings.item, "stars": ratings.rating}
    names = {"one_hot": ["user", "item"], "target": "stars"}
    shards = write_shards(
        data.folder / "movielens", [table], rows_per_shard=2**18, overwrite=True, **names
    )
    return shards, ratings.source


def listed(shards: Shards, times: int) -> Shards:
    """The shards of a folder, after its manifest was changed to list each of them `times` times."""
    manifest = shards.folder / "manifest.json"
    content = json.loads(manifest.read_text())
    content["shards"] *= times
    content["n_samples"] *= times
    manifest.write_text(json.dumps(content))
    return Shards(shards.folder)


# --- passes ---


def against_memory(shards: Shards, repetitions: int) -> Figures:
    """Seconds per pass of shards over seconds of a Design, with one thread and with two."""
    X, Y = in_memory(shards)
    found: Figures = {"rows": shards.n_samples, "shards": len(shards)}
    for threads in (1, 2):
        here = passes(rows_of(Design(X, **HOW, n_threads=threads), Y))
        there = passes(rows_of(ShardDesign(shards, **HOW, n_threads=threads), SIGNS))
        for name in here:
            turns = in_turns({"shards": there[name], "memory": here[name]}, repetitions)
            for clock in ("seconds", "cpu"):
                ratio = turns["shards"][clock] / turns["memory"][clock]
                found[f"{name}, {threads} threads, ratio of {clock}"] = ratio
            log(f"{name}, {threads} threads: {turns}")
    return found


def against(data: Data, repetitions: int) -> Figures:
    return against_memory(data.shards(), repetitions)


def movielens_against(data: Data, repetitions: int) -> Figures:
    shards, source = movielens(data)
    return {"data": source, **against_memory(shards, repetitions)}


def cost(data: Data, repetitions: int) -> Figures:
    """The cost per row: nanoseconds of a pass, and bytes of memory that are not files."""
    shards = data.shards()
    gc.collect()
    before = anonymous()
    with watched() as most:
        steps = passes(rows_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS))
    n = shards.n_samples
    found = {"rows": n, "shards": len(shards), "bytes per row": (anonymous() - before) / n,
             "bytes per row at the most": most() / n}  # fmt: skip
    for name, turns in in_turns(steps, repetitions).items():
        for clock, value in turns.items():
            found[f"{name}, ns per row ({clock})"] = 1e9 * value / shards.n_samples
    return found


def dropped(data: Data, repetitions: int) -> Figures:
    """A pass that reads its files from the disk, against one whose files are in memory."""
    shards = data.shards()
    rows = rows_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS)
    step = passes(rows)["value and gradient"]
    files = [shards.folder / f.name for shard in shards for f in shard.files.values()]
    size = sum(file.stat().st_size for file in files)
    libc = ctypes.CDLL(None)

    def drop() -> None:
        for shard in rows.blocks.shards:
            for array in shard.arrays.values():
                first = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
                size = array.ctypes.data + array.nbytes - first
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def read() -> None:
        for file in files:
            with open(file, "rb", buffering=0) as opened:
                while opened.read(2**23):
                    pass

    warm, cold, disk = [], [], []
    for _ in range(max(3, repetitions // 2)):
        warm.append(seconds(step))
        drop()
        cold.append(seconds(step))
        drop()
        disk.append(seconds(read))
    warm, cold, disk = (float(np.median(each)) for each in (warm, cold, disk))
    return {
        "rows": shards.n_samples, "seconds warm": warm, "seconds cold": cold,
        "ratio": cold / warm, "MB per second of the pass": size / cold / 1e6,
        "MB per second of the disk": size / disk / 1e6, "share of the disk's rate": disk / cold,
    }  # fmt: skip


def limited(data: Data, repetitions: int) -> Figures:
    """Passes over MovieLens 1M, repeated, with room for a quarter of the rows' gradients."""
    shards, source = movielens(data)
    shards = listed(shards, max(2, round(data.rows / shards.n_samples)))
    form = rows_of(ShardDesign(shards, **HOW), SIGNS).blocks.form
    kept = sum(form.kept_bytes(shard) for shard in shards)
    limit = kept / 4
    gc.collect()
    with watched() as most:
        within = Shards(shards.folder, memory=limit)
        steps = passes(rows_of(ShardDesign(within, **HOW, n_threads=2), SIGNS))
        turns = in_turns(steps, max(3, repetitions // 3))
    found = {
        "data": source, "rows": shards.n_samples, "GB of the limit": limit / 1e9,
        "GB at the most": most() / 1e9, "GB for all, by estimate": kept / 1e9,
    }  # fmt: skip
    free = passes(rows_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS))
    for name, figures in in_turns(free, max(3, repetitions // 3)).items():
        found[f"{name}, seconds over those without"] = turns[name]["seconds"] / figures["seconds"]
    return found


def growth(data: Data, repetitions: int) -> Figures:
    """Anonymous memory after 100 passes and after 1,000 more."""
    shards = data.shards()
    steps = passes(rows_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS)).values()
    n_passes, sizes = (1000, []) if repetitions > 3 else (20, [])
    for rounds in (50, n_passes // 2):
        for _ in range(rounds):
            for step in steps:
                step()
        sizes.append(anonymous())
    return {"rows": shards.n_samples, "passes": n_passes, "MB before": sizes[0] / 1e6,
            "MB of growth": (sizes[1] - sizes[0]) / 1e6}  # fmt: skip


# --- writing ---


def writing(data: Data, repetitions: int) -> Figures:
    """Rows per second of `write_shards` from parquet, on one core; bytes per row on disk."""
    import pyarrow as pa
    from pyarrow import parquet

    shards = data.shards()
    path, out = data.folder / "ratings.parquet", data.folder / "again"
    with parquet.ParquetWriter(
        path, pa.schema({"user": pa.int32(), "item": pa.int32(), "stars": pa.uint8()})
    ) as writer:
        for shard in shards:
            indices = shard.arrays["indices"]
            columns = indices[:, 0], indices[:, 1], shard.targets()
            arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
            writer.write_table(pa.table(arrays, ["user", "item", "stars"]))
    rates = []
    for _ in range(min(3, repetitions)):
        batches = parquet.ParquetFile(path).iter_batches(batch_size=2**18, use_threads=False)
        begun = time.process_time()
        write_shards(out, batches, one_hot=["user", "item"], target="stars", overwrite=True)
        rates.append(shards.n_samples / (time.process_time() - begun))
    size = sum(f.stat().st_size for f in out.iterdir() if f.name[0].isdigit())
    categories = sum(f.stat().st_size for f in out.iterdir()) - size
    return {
        "rows": shards.n_samples, "rows per second of a core": float(np.median(rates)),
        "bytes per row": size / shards.n_samples,
        "bytes per row of the tables of categories": categories / shards.n_samples,
    }  # fmt: skip


# --- fits ---


def run(design: Any, alpha: float, each: Callable[[Any], str] | None = None, **options: Any) -> Any:
    """The last state of a fit; `each` may add to the log of every round."""
    begun, state = time.perf_counter(), None
    options = {"n_components": COMPONENTS, "tol": 0.05, "random_state": 0, **options}
    for state in conditional_gradient(
        design, SIGNS, loss="binary_logistic", alpha=alpha, **options
    ):  # fmt: skip
        log(
            f"{time.perf_counter() - begun:8.1f} s: {state.n_components} vectors, objective "
            f"{state.objective:.8g}, violation {state.violation:.4g}{each(state) if each else ''}"
        )
    return state


def held_out(shards: Shards, held: Ratings) -> tuple[Callable[[Any], np.ndarray], Ratings]:
    """The held-out rows whose user and item are known, and the outputs of a state for them."""
    users, items = (shards.categories(name) for name in ("user", "item"))
    known = np.isin(held.user, users) & np.isin(held.item, items)
    held = Ratings(*(column[known] for column in held))
    rows = Design(shards.encoding.codes({"user": held.user, "item": held.item}), **HOW)

    def outputs(state: Any) -> np.ndarray:
        network = rows.outputs(state.H, state.V) + state.intercept
        return network + rows.linear.outputs(state.linear)

    return outputs, held


def planted(data: Data, repetitions: int) -> Figures:
    """A whole fit, compared with the log-loss of the truth on rows held out."""
    shards = data.shards()
    outputs, held = held_out(shards, data.held())
    truth = data.planted.log_loss(data.planted.true_outputs(held.score), held.stars)
    losses = {}

    def each(state: Any) -> str:
        loss = data.planted.log_loss(outputs(state), held.stars)
        losses[state.n_components] = loss / truth
        return f", log-loss {loss / truth:.4f} of the truth's"

    begun = time.perf_counter(), time.process_time()
    with watched() as most:
        state = run(ShardDesign(shards, **HOW, n_threads=2), data.alpha, each)
    taken, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    stars = 5 - (1 / (1 + np.exp(-outputs(state)))).sum(axis=1)
    gradients = 32.0 * shards.n_samples  # kept for all rows: 4 outputs of 8 bytes
    best = min(losses, key=losses.get)
    return {
        "rows": shards.n_samples, "features": shards.n_features, "shards": len(shards),
        "hours": taken / 3600, "seconds": taken, "cpu seconds": cpu,
        "vectors": state.n_components, "stop": state.stop,
        "GB": most() / 1e9, "GB beside the gradients of the rows": (most() - gradients) / 1e9,
        "log-loss of the truth": truth,
        "log-loss, ratio to that": losses[state.n_components],
        "ratio with the best number of vectors": losses[best], "that number": best,
        "rmse": float(np.sqrt(np.mean((stars - held.stars) ** 2))),
    }  # fmt: skip


def replication(data: Data, repetitions: int) -> Figures:
    """MovieLens 1M in a manifest that lists its shards many times, with as many times the alphas.

    The objective and the violation of a model are that many times those of the rows listed once.
    """
    shards, source = movielens(data)
    times = max(2, round(data.rows / shards.n_samples))
    options = {"n_components": 4, "tol": 1e-3}
    state = run(ShardDesign(shards, **HOW, n_threads=2), 20.0, alpha_linear=1.0, **options)
    one = evaluated(shards, state.model, 1)
    many = listed(shards, times)
    begun = time.perf_counter()
    with watched() as most:
        found = evaluated(many, state.model, times)
    return {
        "data": source, "rows": many.n_samples, "times": times, "shards": len(many),
        "seconds": time.perf_counter() - begun, "GB": most() / 1e9,
        "objective, relative difference": found[0] / (times * one[0]) - 1,
        "violation, relative difference": found[1] / (times * one[1]) - 1,
    }  # fmt: skip


def evaluated(shards: Shards, model: Model, times: int) -> tuple[float, float]:
    """Objective and violation of a model, with `times` times the strengths of the penalties."""
    design = ShardDesign(shards, **HOW, n_threads=2)
    strengths = {"alpha": 20.0 * times, "alpha_linear": 1.0 * times}
    rows = rows_of(design, SIGNS)
    objective = Objective(Problem.of(rows.loss, "l1/l2", rows.m, **strengths), rows)
    gradient = objective.gradient(model)
    chosen = select_basis(gradient.gamma(), objective.problem.penalty, random_state=0)
    return gradient.value + objective.penalties(model), chosen.value


# --- Dask ---


@contextmanager
def two_workers() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**how) as cluster, Client(cluster) as client:
        yield client


def latency(data: Data, repetitions: int) -> Figures:
    """Milliseconds of a pass over almost no data."""
    from fastpoly.dask import on_cluster

    with two_workers() as client, tempfile.TemporaryDirectory() as folder:
        tiny = write_shards(folder, [(np.eye(2), [0, 1])], rows_per_shard=1)
        rows = as_rows(ShardDesign(on_cluster(tiny, client)))
        model = rows.empty_model()
        waits = [seconds(lambda: rows.value(model)) for _ in range(40 * repetitions)]
    p50, p95 = 1e3 * np.percentile(waits[len(waits) // 10 :], [50, 95])
    return {"passes": len(waits), "p50 ms": float(p50), "p95 ms": float(p95)}


def on_dask(data: Data, repetitions: int) -> Figures:
    """The speed of 2 workers with one thread each over that of 2 threads, for passes and a fit."""
    from fastpoly.dask import on_cluster

    shards = data.shards()
    found: Figures = {"rows": shards.n_samples, "shards": len(shards)}
    with two_workers() as client:
        remote = on_cluster(shards, client)
        there = passes(rows_of(ShardDesign(remote, **HOW), SIGNS))
        here = passes(rows_of(ShardDesign(shards, **HOW, n_threads=2), SIGNS))
        for name in here:
            turns = in_turns({"threads": here[name], "workers": there[name]}, repetitions)
            found[f"{name}: speed"] = turns["threads"]["seconds"] / turns["workers"]["seconds"]
            log(f"{name}: {turns}")
        del here, there
        times = {}
        for name, rows in (("threads", shards), ("workers", remote)):
            design = ShardDesign(rows, **HOW, n_threads=2)
            times[name] = seconds(lambda d=design: run(d, data.alpha, n_components=4))
    return {**found, "fit: speed": times["threads"] / times["workers"], **times}
