"""Time and size compared with the peers: the cost of a model that is as good as theirs.

The fits are those of `multiclass.py` and `recsys.py`, interleaved on the same splits, in CPU
seconds of one thread; ratios are medians over the splits. For classes, the path of the network
(l1/l2) is compared with the grids of the quadratic SVC, of logistic regression on all products, and
of Nystroem's features. "To quality" is the seconds until the network is first within one point of
the SVC's validation accuracy. For ratings (ML-100k), the searched ordinal machine is compared with
biases, myFM and cmfrec; "to quality" is the time until it is as good as each of them on the
validation part.
"""

from statistics import median

import classifiers
import multiclass
import recommenders
import recsys
from experiment import (
    Options,
    Result,
    Store,
    Task,
    figure,
    options,
    run_tasks,
    spread,
    table,
    write,
)

NETWORK = "fastpoly, l1/l2"
RIVALS = ("quadratic SVC", "polynomial LR", "Nystroem")
NETWORK_SETTINGS = {"method": "path", "activation": "PN", "penalty": "l1/l2", "ridge": 1}
MACHINE = recsys.SEARCHED
MACHINE_SETTINGS = {"method": "search", "machine": "ordinal FM", "penalty": "l1/l2"}
NEAR = 1.0  # points of validation accuracy

Results = list[tuple[Task, Result]]


def class_tasks(where: Options) -> list[Task]:
    return [
        task for task in multiclass.all_tasks(where) if task["method"] in RIVALS or is_network(task)
    ]


def is_network(task: Task) -> bool:
    """Whether the task is a path of the network with the default penalty and ridge."""
    return all(task.get(key) == value for key, value in NETWORK_SETTINGS.items())


def rating_tasks(where: Options) -> list[Task]:
    """The tasks of our machine, with the default penalty, and of the peers."""
    return [
        task
        for task in recsys.tasks_of("ml-100k", where)
        if task["method"] not in ("default", "search") or is_machine(task)
    ]


def is_machine(task: Task) -> bool:
    return all(task.get(key) == value for key, value in MACHINE_SETTINGS.items())


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        # One process only, because these are timings.
        store = Store(where.results / "classifier_runs.json")
        classes = run_tasks(classifiers.fit, class_tasks(where), store, 1, "peers, classes")
        store = Store(where.results / "recsys_runs.json")
        ratings = run_tasks(recommenders.fit, rating_tasks(where), store, 1, "peers, ratings")
        report(where, classes, ratings)


def reached(results: Results, seed: int, target: float, measure: str, sign: int) -> float | None:
    """Seconds until a fit of that seed first reaches the value; more is better if sign is 1."""
    times = [
        seconds
        for task, r in results
        if task["seed"] == seed
        for seconds, value in zip(r["seconds"], r[measure], strict=True)
        if sign * value >= sign * target
    ]
    return min(times, default=None)


def class_summary(results: Results, name: str) -> dict[str, dict]:
    """For every method, the chosen models and the ratios to the SVC."""
    rows = {NETWORK: NETWORK_SETTINGS, **{rival: {"method": rival} for rival in RIVALS}}
    entries = {label: multiclass.chosen(results, name, **kind) for label, kind in rows.items()}
    svc = entries["quadratic SVC"]
    networks = [(task, r) for task, r in results if task["set"] == name and is_network(task)]
    times = [reached(networks, e["seed"], e["validation"] - NEAR, "validation", 1) for e in svc]
    answer: dict[str, dict] = {}
    for label, of_seeds in entries.items():
        pairs = list(zip(of_seeds, svc, strict=True))
        answer[label] = {
            "test": [e["test"] for e in of_seeds],
            "loss": [e["test_loss"] for e in of_seeds],
            "units": median(e["units"] for e in of_seeds),
            "parameters": median(e["parameters"] for e in of_seeds),
            "grid": median(e["grid"] for e in of_seeds),
            "grid_ratio": median(e["grid"] / s["grid"] for e, s in pairs),
            "fit": median(e["seconds"] for e in of_seeds),
            "predict": median(e["predict"] for e in of_seeds),
            "predict_gain": median(s["predict"] / e["predict"] for e, s in pairs),
        }
    known = [t for t in times if t is not None]
    answer[NETWORK]["to_quality"] = median(known) if len(known) == len(times) else None
    return answer


def report(where: Options, classes: Results, ratings: Results) -> None:
    summary: dict = {name: class_summary(classes, name) for name in multiclass.SETS}
    text = ""
    for name, methods in summary.items():
        rows = []
        for label, m in methods.items():
            quality = m.get("to_quality")
            rows.append(
                [label, spread(m["test"]), "" if None in m["loss"] else spread(m["loss"], 3),
                 f"{m['units']:.0f}", f"{m['parameters']:.0f}", f"{m['fit']:.3f}",
                 "" if quality is None else f"{quality:.3f}", f"{m['grid']:.2f}",
                 f"{m['grid_ratio']:.2f}x", f"{1e3 * m['predict']:.2f}",
                 f"{m['predict_gain']:.1f}x"]
            )  # fmt: skip
        header = ["", "test accuracy", "log-loss", "units", "parameters", "fit (s)",
                  "to quality (s)", "grid (s)", "grid / SVC's", "predict (ms)",
                  "faster than SVC"]  # fmt: skip
        text += f"{name}\n\n{table(header, rows)}\n"
    summary["ml-100k"] = rating_summary(ratings)
    rows = [
        [
            label,
            *(spread(m[metric], 4) for metric in recommenders.METRICS),
            f"{m['seconds']:.2f}",
            f"{m['grid']:.2f}",
            f"{m['units']:.0f}",
            f"{m['ratio']:.2f}x",
            *(f"{t:.2f}" for t in m["to_quality"]),
        ]
        for label, m in summary["ml-100k"].items()
    ]
    text += (
        "ml-100k (settings chosen for each measure; seconds and units of the fit chosen by RMSE; "
    )
    text += "last, how long the ordinal machine takes to that validation RMSE)\n\n"
    header = ["", *recsys.NAMES.values(), "fit (s)", "grid (s)", "units", "fit / ours",
              "ours to quality (s)"]  # fmt: skip
    text += table(header, [row + [""] * (len(header) - len(row)) for row in rows])
    write(where, "peers", summary, text, draw(summary))


def rating_summary(results: Results) -> dict[str, dict]:
    """For every method, the chosen models and times, compared with the ordinal machine."""
    answer = {}
    ours = [(task, r) for task, r in results if is_machine(task)]
    our_choice = recsys.chosen(ours, "rmse")
    for method in dict.fromkeys(task["method"] for task, _ in results):
        own = [(task, r) for task, r in results if task["method"] == method]
        chosen = recsys.chosen(own, "rmse")
        seeds = sorted({task["seed"] for task, _ in own})
        times = [
            reached(ours, seed, e["validation"], "validation_rmse", -1)
            for seed, e in zip(seeds, chosen, strict=True)
        ]
        ratios = [e["seconds"] / o["seconds"] for e, o in zip(chosen, our_choice, strict=True)]
        label = MACHINE if method == "search" else method
        answer[label] = {
            "seconds": median(e["seconds"] for e in chosen),
            "units": median(e["units"] for e in chosen),
            "ratio": median(ratios),
            "grid": median(e["grid"] for e in chosen),
            "to_quality": [] if None in times else [median(times)],
        }
        for metric in recommenders.METRICS:
            answer[label][metric] = [e["test"] for e in recsys.chosen(own, metric)]
    return answer


def draw(summary: dict):
    """Plot accuracy against fitting time; the area of a dot is the number of parameters."""
    picture, axes = figure(1, len(multiclass.SETS), 2.8, 3.0)
    for axis, name in zip(axes[0], multiclass.SETS, strict=True):
        for i, (label, m) in enumerate(summary[name].items()):
            axis.scatter(
                m["fit"], median(m["test"]), s=8 + m["parameters"] / 100, color=f"C{i}", alpha=0.6,
                label=label,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.margins(0.25)  # room for the largest dots
        axis.xaxis.set_minor_formatter("")
        axis.set_title(name)
        axis.set_xlabel("seconds to the chosen model")
    axes[0, 0].set_ylabel("test accuracy (%)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4)
    return picture


if __name__ == "__main__":
    main()
