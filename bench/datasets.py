"""The data of the experiments: `python bench/datasets.py [name ...]` fetches and describes them.

`load(name)` looks for `name.npz` in the folder FASTPOLY_DATA, then in the cache (FASTPOLY_CACHE, or
`fastpoly` in the user's cache folder). Otherwise it downloads the original from LIBSVM's page or
from GroupLens, checks its size and its histogram, and keeps it in the cache. An interrupted
download continues where it stopped. `stand_in(name)` makes up data of the same shape, for use
without data.

The class sets are the training parts, scaled by LIBSVM, as in the paper (origin: UCI repository).
MovieLens may be used for research, with acknowledgment, and not be redistributed: F. M. Harper and
J. A. Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015.

Arrays of the files: X (n, d), y (n,) 0..m-1 and, where there is a test part too, split (0 =
training); or user, item (0-based, contiguous) and rating (1..5).
"""

import argparse
import io
import os
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
GROUPLENS = "https://files.grouplens.org/datasets/movielens/"
CHUNK = 2**16
ATTEMPTS = 5


class Classes(NamedTuple):
    """Rows and their class codes 0..m-1."""

    X: np.ndarray
    y: np.ndarray
    m: int
    source: str


class Ratings(NamedTuple):
    """Users, items and ratings 1..5."""

    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    n_users: int
    n_items: int
    source: str

    def one_hot(self) -> sp.csr_array:
        """Rows with a 1 at the user and a 1 at the item."""
        return one_hot(self.user, self.item, self.n_users, self.n_items)


class ClassSet(NamedTuple):
    """What the file of a class set must contain."""

    d: int
    counts: tuple[int, ...]  # rows of each class
    url: str

    @property
    def shape(self) -> tuple[int, int, int]:
        return sum(self.counts), self.d, len(self.counts)


class RatingSet(NamedTuple):
    """What the file of a rating set must contain."""

    n_users: int
    n_items: int
    counts: tuple[int, ...]  # ratings 1 to 5
    url: str
    member: str  # name in the zip file
    separator: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        return sum(self.counts), self.n_users, self.n_items


LETTER_COUNTS = (
    594, 567, 554, 598, 565, 565, 547, 538, 567, 575, 572, 560, 607,
    605, 574, 597, 594, 568, 563, 599, 606, 581, 576, 583, 602, 543,
)  # fmt: skip
CLASS_SETS = {
    "segment": ClassSet(19, (330,) * 7, LIBSVM + "segment.scale"),
    "vowel": ClassSet(10, (48,) * 11, LIBSVM + "vowel.scale"),
    "satimage": ClassSet(36, (1072, 479, 961, 415, 470, 1038), LIBSVM + "satimage.scale"),
    "letter": ClassSet(16, LETTER_COUNTS, LIBSVM + "letter.scale"),
}
RATING_SETS = {
    "ml-100k": RatingSet(
        943, 1682, (6110, 11370, 27145, 34174, 21201),
        GROUPLENS + "ml-100k.zip", "ml-100k/u.data", b"\t",
    ),
    "ml-1m": RatingSet(
        6040, 3706, (56174, 107557, 261197, 348971, 226310),
        GROUPLENS + "ml-1m.zip", "ml-1m/ratings.dat", b"::",
    ),
}  # fmt: skip
NAMES = (*CLASS_SETS, *RATING_SETS)


# ---- finding ------------------------------------------------------------------------------------


def load(name: str) -> Classes | Ratings:
    """The set of that name: from FASTPOLY_DATA, the cache, or its official source."""
    found = find(name)
    return fetch(name) if found is None else found


def find(name: str) -> Classes | Ratings | None:
    """The set of that name, if it is in FASTPOLY_DATA or in the cache."""
    known(name)
    folders = [Path(os.environ["FASTPOLY_DATA"])] if os.environ.get("FASTPOLY_DATA") else []
    for folder in (*folders, cache()):
        path = folder / f"{name}.npz"
        if path.is_file():
            with np.load(path) as arrays:
                return checked(name, dict(arrays), path.name)
    return None


def known(name: str) -> ClassSet | RatingSet:
    """The description of the set."""
    if name not in NAMES:
        raise ValueError(f"unknown set {name!r}; known: {', '.join(NAMES)}")
    return {**CLASS_SETS, **RATING_SETS}[name]


def cache() -> Path:
    """The folder for downloaded sets."""
    if os.environ.get("FASTPOLY_CACHE"):
        return Path(os.environ["FASTPOLY_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fastpoly"


def checked(name: str, arrays: dict[str, np.ndarray], source: str) -> Classes | Ratings:
    """The set of these arrays; raise unless size and histogram are those of the original."""
    kind = known(name)
    if isinstance(kind, ClassSet):
        train = arrays["split"] == 0 if "split" in arrays else slice(None)
        X, y = np.asarray(arrays["X"][train], dtype=np.float64), arrays["y"][train].astype(int)
        agree(name, "shape", X.shape, kind.shape[:2])
        agree(name, "histogram of the classes", tuple(np.bincount(y)), kind.counts)
        return Classes(X, y, len(kind.counts), source)
    user, item, rating = (arrays[key].astype(np.int32) for key in ("user", "item", "rating"))
    agree(name, "histogram of the ratings", tuple(np.bincount(rating)[1:]), kind.counts)
    agree(name, "number of users", int(user.max()) + 1, kind.n_users)
    agree(name, "number of items", int(item.max()) + 1, kind.n_items)
    return Ratings(user, item, rating, kind.n_users, kind.n_items, source)


def agree(name: str, what: str, have: object, want: object) -> None:
    if have != want:
        raise ValueError(f"{name} is not the set that it should be: {what} {have}, not {want}")


# ---- downloading --------------------------------------------------------------------------------


def fetch(name: str) -> Classes | Ratings:
    """Download the original, parse it, check it and keep it in the cache."""
    kind, folder = known(name), cache()
    folder.mkdir(parents=True, exist_ok=True)
    raw = folder / kind.url.rsplit("/", 1)[1]
    try:
        download(kind.url, raw)
    except OSError as error:
        raise OSError(
            f"{name} could not be downloaded from {kind.url} ({error}); put {name}.npz into a "
            "folder and name it in FASTPOLY_DATA, or use made-up data of the same shape (--made-up)"
        ) from error
    try:
        arrays = PARSERS[type(kind)](raw, kind)
        answer = checked(name, arrays, raw.name)
    finally:
        raw.unlink()
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".npz", delete=False) as file:
        np.savez_compressed(file, **arrays)
    os.replace(file.name, folder / f"{name}.npz")
    return answer


def download(url: str, path: Path) -> None:
    """Fetch a file; continue an earlier attempt from `path`.part."""
    part = path.with_name(path.name + ".part")
    for attempt in range(ATTEMPTS):
        try:
            if receive(url, part):
                part.replace(path)
                return
        except urllib.error.HTTPError as error:
            if error.code != 416:  # 416: the part that is there does not begin the file
                raise
            part.unlink()
        except OSError:
            if attempt == ATTEMPTS - 1:
                raise
    raise OSError(f"{url}: the connection was cut {ATTEMPTS} times; try again to continue")


def receive(url: str, part: Path) -> bool:
    """Append the missing bytes while the connection lasts; return whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        resumed = answer.status == 206
        if have and not resumed:
            have = 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with (
            open(part, "ab" if resumed else "wb") as file,
            tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem) as bar,
        ):
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
    return total is None or have == total


def parse_libsvm(path: Path, kind: ClassSet) -> dict[str, np.ndarray]:
    """Lines `label index:value ...` with indices from 1; labels in order become 0..m-1."""
    lines = path.read_text().split("\n")
    lines = [line.split() for line in lines if line.strip()]
    X = np.zeros((len(lines), kind.d))
    for row, (_, *entries) in zip(X, lines, strict=True):
        for entry in entries:
            index, value = entry.split(":")
            row[int(index) - 1] = float(value)
    labels = np.array([float(line[0]) for line in lines])
    return {"X": X, "y": np.unique(labels, return_inverse=True)[1]}


def parse_movielens(path: Path, kind: RatingSet) -> dict[str, np.ndarray]:
    """Lines `user, item, rating, time` in a member of a zip file; ids in order become codes."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read(kind.member)
    table = np.loadtxt(io.BytesIO(text.replace(kind.separator, b"\t")), dtype=np.int64)
    user, item = (np.unique(table[:, c], return_inverse=True)[1] for c in (0, 1))
    return {
        "user": user.astype(np.int32), "item": item.astype(np.int32),
        "rating": table[:, 2].astype(np.int8),
    }  # fmt: skip


PARSERS = {ClassSet: parse_libsvm, RatingSet: parse_movielens}


# ---- making up ----------------------------------------------------------------------------------


def stand_in(name: str, shape: tuple[int, int, int] | None = None, seed: int = 0):
    """Made-up data of the same shape (n, d, m) or (n, users, items), or of the given shape."""
    kind = known(name)
    if isinstance(kind, ClassSet):
        return made_up_classes(*(shape or kind.shape), seed)
    return made_up_ratings(*(shape or kind.shape), seed)


def made_up_classes(n: int, d: int, m: int, seed: int = 0) -> Classes:
    """Classes that are decided by a quadratic function of the rows and a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    scores = (X @ rng.standard_normal((d, 2 * m))) ** 2 @ rng.standard_normal((2 * m, m))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    scores += 0.1 * rng.standard_normal(scores.shape)
    return Classes(X, scores.argmax(axis=1), m, "made up")


def made_up_ratings(n: int, n_users: int, n_items: int, seed: int = 0) -> Ratings:
    """Ratings sorted by user: uneven popularity, and taste of rank 4."""
    rng = np.random.default_rng(seed)

    def draw(size: int) -> np.ndarray:
        popularity = rng.lognormal(sigma=1.3, size=size)
        return rng.choice(size, n, p=popularity / popularity.sum())

    user, item = np.sort(draw(n_users)), draw(n_items)
    tastes = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    liking = 0.4 * (tastes[0][user] * tastes[1][item]).sum(axis=1) + rng.standard_normal(n)
    liking += rng.standard_normal(n_users)[user] + rng.standard_normal(n_items)[item]
    rating = 1 + np.searchsorted(np.quantile(liking, [0.06, 0.17, 0.44, 0.79]), liking)
    return Ratings(user, item, rating, n_users, n_items, "made up")


def one_hot(
    user: np.ndarray, item: np.ndarray, n_users: int, n_items: int, dtype: type = np.float64
) -> sp.csr_array:
    """Rows with a 1 at the user and a 1 at the item, (n, n_users + n_items)."""
    n = len(user)
    columns = np.column_stack([user, n_users + item]).ravel().astype(np.int32)
    values, starts = np.ones(2 * n, dtype), np.arange(0, 2 * n + 1, 2, dtype=np.int32)
    return sp.csr_array((values, columns, starts), shape=(n, n_users + n_items))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    for name in names:
        try:
            data = load(name)
        except (OSError, ValueError) as error:
            sys.exit(f"{name}: {error}")
        if isinstance(data, Classes):
            print(f"{name}: {len(data.X)} rows, {data.X.shape[1]} features, {data.m} classes")
        else:
            n = len(data.rating)
            print(f"{name}: {n} ratings of {data.n_users} users and {data.n_items} items")


if __name__ == "__main__":
    main()
