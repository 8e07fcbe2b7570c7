"""The cost of rows in shards: against rows in memory, by the number of rows, and on a cluster.

    python bench/scale.py --quick                              # all measurements with 2e4 rows
    python bench/scale.py --list
    python bench/scale.py --only against7 dask7 --folder DATA  # some measurements
    python bench/scale.py --folder DATA                        # all of them, which takes hours

The name of a measurement ends with the power of ten of its rows. Ratings are planted
(`planted.py`): 4 outputs, an ordinal factorization machine with linear terms, 10 basis vectors.
Ratios are medians of interleaved passes in one process. Data stay in the folder and are used again.
Every measurement goes to `results/scale.json` and `results/scale.md` as soon as it is done.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import scale_lines as lines

RESULTS = Path(__file__).parent / "results" / "scale.json"

# Name: function, rows, description, goal.
LINES = {
    "movielens6": (lines.movielens_against, 1e6, "MovieLens 1M, shards against memory", "<= 1.10"),
    "against6": (lines.against, 1e6, "shards against memory", "<= 1.10"),
    "against7": (lines.against, 1e7, "shards against memory", "<= 1.10"),
    "dropped7": (lines.dropped, 1e7, "page cache dropped", "<= 1.5, or 80 % of the disk's rate"),
    "cost6": (lines.cost, 1e6, "cost per row", "linear within 10 %, <= 60 bytes"),
    "cost7": (lines.cost, 1e7, "cost per row", "linear within 10 %, <= 60 bytes"),
    "cost8": (lines.cost, 1e8, "cost per row", "linear within 10 %, <= 60 bytes"),
    "limited7": (lines.limited, 1e7, "MovieLens 1M x 10, limited memory", "limit + 0.5 GB"),
    "limited8": (lines.limited, 1e8, "MovieLens 1M x 100, limited memory", "limit + 0.5 GB"),
    "growth6": (lines.growth, 1e6, "1,000 passes", "no growth"),
    "write7": (lines.writing, 1e7, "write_shards from parquet", ">= 3e6 rows/s, <= 10 bytes"),
    "latency": (lines.latency, 1e6, "an empty Dask pass", "<= 15 / 40 ms"),
    "dask7": (lines.on_dask, 1e7, "2 Dask workers against 2 threads", ">= 0.8"),
    "planted6": (lines.planted, 1e6, "a whole fit", "log-loss within 1 % of the truth"),
    "planted7": (lines.planted, 1e7, "a whole fit", "log-loss within 1 % of the truth"),
    "planted8": (lines.planted, 1e8, "a whole fit", "<= 1.5 h, <= 6 GB"),
    "replication7": (lines.replication, 1e7, "MovieLens 1M x 10", "10 times the objective"),
    "replication8": (lines.replication, 1e8, "MovieLens 1M x 100", "100 times the objective"),
}


def commit() -> str:
    """The commit of the code that is measured."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def save(name: str, figures: dict[str, Any]) -> None:
    """Add a measurement to the results, and keep the others."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = figures
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(report(results))


def report(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    text = [
        "# Rows in shards: cost, scale, cluster",
        "",
        "Written by `bench/scale.py`, which describes the measurements. Ratings are planted unless",
        "it says MovieLens: 4 outputs, 10 basis vectors, an ordinal factorization machine with",
        "linear terms. `cpu` is the time of all processors.",
        "",
    ]
    for name, (_, _, what, aim) in LINES.items():
        if name not in results:
            continue
        figures = dict(results[name])
        where = f"{figures.pop('commit')}, {figures.pop('when')}, {figures.pop('machine')}"
        text += [f"## {name}: {what} ({aim})", "", f"Commit {where}.", "", "| | |", "|---|---|"]
        text += [f"| {key} | {shown(value)} |" for key, value in figures.items()]
        text.append("")
    small, large = results.get("cost6"), results.get("cost8") or results.get("cost7")
    if small and large:
        text += [f"## Linear: {large['rows']:.3g} rows against {small['rows']:.3g}, per row", ""]
        text += [
            f"- {key}: {large[key] / small[key]:.3f}" for key in small if key.endswith("(cpu)")
        ]
        text.append("")
    return "\n".join(text)


def shown(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="LINE", choices=LINES, default=list(LINES))
    parser.add_argument("--list", action="store_true", help="list the measurements and stop")
    parser.add_argument("--quick", action="store_true", help="2e4 rows, nothing saved")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--rows", type=float, help="another number of rows; not saved")
    parser.add_argument("--folder", type=Path, help="for the data; by default a temporary one")
    options = parser.parse_args()
    if options.list:
        for name, (_, rows, what, aim) in LINES.items():
            print(f"{name:13} {rows:5.0e}  {what}: {aim}")
        return
    if options.quick:
        options.rows, options.repetitions = 2e4, 3
    failed, done = [], set()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for name in options.only:
            measure, rows, what, aim = LINES[name]
            if options.rows and measure in done:
                continue
            done.add(measure)
            rows = options.rows or rows
            print(f"{name}: {what}, {rows:g} rows ({aim})", flush=True)
            begun = time.perf_counter()
            (folder / f"{rows:g}").mkdir(parents=True, exist_ok=True)
            try:
                found = measure(lines.Data(folder, rows), options.repetitions)
            except Exception as error:  # the other measurements are still useful
                lines.log(f"{name} FAILED: {type(error).__name__}: {error}")
                failed.append(name)
                continue
            for key, value in found.items():
                lines.log(f"{key}: {shown(value)}")
            lines.log(f"{time.perf_counter() - begun:.0f} s in all")
            if not options.rows:
                machine = f"{os.cpu_count()} cores, {platform.machine()}"
                when = time.strftime("%Y-%m-%d")
                save(name, {**found, "commit": commit(), "when": when, "machine": machine})
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
