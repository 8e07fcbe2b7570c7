"""Draw docs/architecture.svg: `python docs/draw_architecture.py`. Needs matplotlib only."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

# Text stays text, and the same program gives the same bytes.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fastpoly", "font.size": 9})

WIDTH, HEIGHT = 11.0, 8.6
# Layers from the bottom up: what the folder or the modules are called, and where the band begins.
BANDS = {
    "kernels/": 0.3,
    "problem, state,\ntables/": 1.45,
    "rows/": 2.6,
    "objective": 3.75,
    "selection/, refit/": 4.9,
    "algorithm, path,\nstrengths, model": 6.05,
    "estimators/": 7.2,
}
BAND_HEIGHT = 1.0
# Boxes: name -> (band, center, width, text).
BOXES = {
    "losses": (0, 3.3, 2.1, "losses, penalties"),
    "pass": (0, 6.1, 2.6, "JointObjective\nfused pass: outputs, loss, gradients"),
    "gamma": (0, 9.2, 2.7, "Gamma, eigenvectors\nall outputs in one pass"),
    "encoding": (1, 3.3, 2.1, "Encoding: columns of a\nframe to codes and tables"),
    "problem": (1, 7.15, 2.1, "Problem: what is\nminimized, without rows"),
    "state": (1, 9.5, 2.1, "State: a model\nwith its certificate"),
    "block": (2, 3.3, 2.1, "Block: Design, targets,\nweights; sums as methods"),
    "rows": (2, 6.1, 2.6, "Rows: a list of blocks\nrows.sum(Block.value_grad, x, k)"),
    "engine": (2, 9.2, 2.7, "Engine: threads, executors, Dask\none fixed tree of additions"),
    "objective": (3, 6.1, 2.6, "Objective(problem, rows)\nvalue_grad(x), at(alpha)"),
    "selection": (4, 4.6, 2.5, "select_basis\nwhich vectors enter"),
    "refit": (4, 7.6, 2.5, "joint descent, output refit\nhow all parameters move"),
    "strengths": (5, 3.6, 1.5, "strengths, path:\nwalks over alphas"),
    "train": (5, 6.1, 2.6, "train: Algorithm 1\nan iterator of states"),
    "model": (5, 9.2, 2.7, "PolyModel: predict, save,\ninteractions; storage/"),
    "data": (6, 3.3, 2.1, "TrainingRows:\nchecked X, y, weights"),
    "fit": (6, 6.1, 2.6, "fit(X, y), fit(shards)"),
    "predict": (6, 9.2, 2.7, "predict, transform,\nplotting, ONNX"),
}
# Arrows: the way of a row (blue), of a call (black), of a result (red); and what they carry.
ROW, CALL, RESULT = "tab:blue", "0.2", "tab:red"
ARROWS = [
    ("fit", "data", ROW, "rows"),
    ("data", "block", ROW, ""),
    ("encoding", "block", ROW, "codes"),
    ("block", "rows", ROW, ""),
    ("fit", "train", CALL, ""),
    ("fit", "strengths", CALL, ""),
    ("strengths", "train", CALL, ""),
    ("train", "selection", CALL, ""),
    ("train", "refit", CALL, ""),
    ("selection", "objective", CALL, ""),
    ("refit", "objective", CALL, ""),
    ("objective", "rows", CALL, ""),
    ("rows", "engine", CALL, ""),
    ("rows", "pass", CALL, "passes"),
    ("train", "model", RESULT, "state"),
    ("model", "predict", RESULT, ""),
]
# These go down along the left edges of their boxes, past others.
STRAIGHT = {("data", "block"), ("rows", "pass")}


def place(name: str) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of a box."""
    band, center, width, _ = BOXES[name]
    bottom = list(BANDS.values())[band] + 0.17
    return center - width / 2, bottom, center + width / 2, bottom + BAND_HEIGHT - 0.34


def ends(a: str, b: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow leaves box a and arrives at box b."""
    (left, bottom, right, top), (left_b, bottom_b, right_b, top_b) = place(a), place(b)
    middle, middle_b = (left + right) / 2, (left_b + right_b) / 2
    if bottom == bottom_b:
        y = (bottom + top) / 2
        return ((right, y), (left_b, y)) if middle < middle_b else ((left, y), (right_b, y))
    down = bottom > bottom_b
    x_b = left_b + 0.25 if (a, b) in STRAIGHT else min(max(middle, left_b + 0.3), right_b - 0.3)
    x = min(max(x_b, left + 0.25), right - 0.25)
    return (x, bottom if down else top), (x_b, top_b if down else bottom_b)


def main() -> None:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    ax.axis("off")
    for text, bottom in BANDS.items():
        band = mpl.patches.Rectangle((0.2, bottom), WIDTH - 0.4, BAND_HEIGHT, color="0.95")
        ax.add_patch(band)
        ax.text(0.35, bottom + BAND_HEIGHT / 2, text, va="center", family="monospace")
    for name, (_, center, _, text) in BOXES.items():
        left, bottom, right, top = place(name)
        box = mpl.patches.FancyBboxPatch(
            (left, bottom), right - left, top - bottom, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="white", edgecolor="0.6",
        )  # fmt: skip
        ax.add_patch(box)
        ax.text(center, (bottom + top) / 2, text, ha="center", va="center", fontsize=8)
    for a, b, color, text in ARROWS:
        begin, end = ends(a, b)
        style = {"arrowstyle": "->", "color": color, "linewidth": 1.4}
        ax.annotate("", end, begin, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})
        if text:
            x, y = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
            ax.text(
                x + 0.05,
                y + 0.08,
                text,
                color=color,
                ha="left" if begin[0] == end[0] else "center",
                fontsize=8,
            )
    legend = {"the way of a row": ROW, "the way of a call": CALL, "the result": RESULT}
    for i, (text, color) in enumerate(legend.items()):
        ax.text(3.0 + 2.3 * i, 8.38, f"→ {text}", color=color, va="center")
    figure.savefig(Path(__file__).with_name("architecture.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
