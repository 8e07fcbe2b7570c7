"""Shards in files: what is written is what is read, and errors name what is wrong."""

import gc
import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from shard_cases import KINDS, Case
from subprocesses import ANONYMOUS, run_python

from fastpoly import (
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    Shards,
    write_shards,
)
from fastpoly.rows import as_rows
from fastpoly.rows.format import digest_of, write_array
from fastpoly.rows.ingest import DataFile, Distincts
from fastpoly.rows.rows import shard_statistics
from fastpoly.rows.writing import main
from fastpoly.storage.npz import read_arrays, write_arrays
from fastpoly.tables import Encoding
from fastpoly.tables.frames import Column

pd = pytest.importorskip("pandas")

NAMES = {"one_hot": ["user", "item"], "target": "stars"}


def dense(shard):
    """X of a shard as an array."""
    X = shard.matrix(False)
    if not X.sparse:
        return np.array(X.array)
    return sp.csr_array(X.arrays, shape=(X.n, X.d)).toarray()


def file_of(folder, start):
    """The path of the one file whose name starts like this."""
    (path,) = folder.glob(f"{start}.*")
    return path


def everything(shards):
    """X, y and weights of all shards."""
    X = np.vstack([dense(shard) for shard in shards])
    y = np.concatenate([shard.targets() for shard in shards])
    w = [shard.weights() for shard in shards]
    return X, y, None if w[0] is None else np.concatenate(w)


def encoded(shards, table):
    """The rows of a table, in the encoding of shards, as CSR."""
    P = shards.encoding.codes({name: table[name] for name in shards.encoding.names})
    if sp.issparse(P):  # with lists
        return P
    begins = np.arange(0, P.indices.size + 1, P.indices.shape[1])
    return sp.csr_array((np.ones(P.indices.size), P.indices.ravel(), begins), shape=P.shape)


# --- what goes in comes out ---


@pytest.mark.parametrize("rows_per_shard", [1, 7, 100, 1000])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_pairs_come_back(tmp_path, kind, rows_per_shard):
    case = Case(kind, n=150)
    w = np.random.default_rng(0).random(150)
    cuts = [0, 10, 10, 77, 150]
    batches = [(case.X[a:b], case.y[a:b] * 10, w[a:b]) for a, b in pairwise(cuts)]
    shards = write_shards(tmp_path, iter(batches), rows_per_shard=rows_per_shard)
    X, y, weights = everything(shards)
    assert len(shards) == -(-150 // rows_per_shard)
    np.testing.assert_array_equal(X, case.X if kind == "dense" else case.X.toarray())
    assert shards.classes[y].tolist() == (case.y * 10).tolist()
    np.testing.assert_array_equal(weights, w)


@pytest.mark.parametrize("rows_per_shard", [3, 100])
@pytest.mark.parametrize("named", [False, True])
def test_lists_are_encoded_as_those_of_a_frame(tmp_path, named, rows_per_shard):
    """Gaps, empty lists, gaps in lists, levels twice in a row and in a single row, two lists."""
    table = {
        "likes": [["b", "a", "b"], [], None, ["c"], ["a", None], ["b", "c"], ["d"], ["a"]] * 2,
        "age": [1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0] * 2,
        "codes": [[7], [3, 7], [], [3], [5], [7, 3], [3], [7]] * 2,
        "city": ["x", "y", "x", None] * 4,
    }
    table["likes"][0] = ["b", "a", "b", "once"]
    names = {"one_hot": ["likes", "codes", "city"], "numeric": ["age"]} if named else {}
    batches = [{k: v[a:b] for k, v in table.items()} | {"y": np.arange(a, b)} for a, b in
               pairwise([0, 5, 16])]  # fmt: skip
    shards = write_shards(tmp_path, batches, target="y", rows_per_shard=rows_per_shard, **names)
    order = [*names["one_hot"], "age"] if named else list(table)
    encoding, codes = Encoding.learn({n: table[n] for n in order}, min_count=1 if named else 2)
    assert shards.encoding == encoding
    assert ("likes=once" in shards.feature_names) == named
    np.testing.assert_array_equal(everything(shards)[0], codes.toarray())
    np.testing.assert_array_equal(encoded(shards, table).toarray(), codes.toarray())
    Shards(tmp_path, verify=True)
    settings = {"alpha": 0.5, "alpha_linear": 1.0, "tol": 1e-7, "shapes": "hinges"}
    model = FactorizationMachineRegressor(random_state=0, **settings)
    by_shards = model.fit(shards).predict(table)
    if not named:
        by_frame = model.fit(table, np.arange(16.0)).predict(table)
        np.testing.assert_allclose(by_shards, by_frame, atol=1e-4)
    with pytest.raises(ValueError, match="column 'likes' must hold lists, got 'a'"):
        write_shards(tmp_path, [batches[0], batches[0] | {"likes": ["a"] * 5}], target="y",
                     overwrite=True)  # fmt: skip


def frames(kind, table):
    if kind == "pandas":
        return pd.DataFrame(table)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(table)
    if kind == "mapping":
        return table
    arrow = pytest.importorskip("pyarrow")
    made = arrow.table(table)
    return made if kind == "arrow table" else made.to_batches()[0]


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("kind", ["pandas", "polars", "mapping", "arrow table", "arrow batch"])
def test_tables_come_back(tmp_path, kind, text):
    rng = np.random.default_rng(1)
    n = 200
    table = {
        "user": rng.integers(5, 30, size=n),
        "item": rng.integers(-3, 9, size=n) * 1000,
        "age": rng.integers(0, 12, size=n) / 4,
        "stars": rng.integers(1, 6, size=n),
        "w": rng.random(n),
    }
    if text:
        table["user"] = np.array([f"user {u}" for u in table["user"]], dtype=object)
        table["stars"] = np.array([f"{s} stars" for s in table["stars"]], dtype=object)
    batches = [{name: c[:80] for name, c in table.items()}, {n: c[80:] for n, c in table.items()}]
    shards = write_shards(
        tmp_path, [frames(kind, batch) for batch in batches], **NAMES, numeric=["age"], weight="w",
        rows_per_shard=64,
    )  # fmt: skip
    X, y, w = everything(shards)
    users, items = np.unique(table["user"]), np.unique(table["item"])
    ages = np.unique(table["age"])  # each has a bin of its own
    other = np.zeros((n, 1))
    want = np.hstack([
        table["user"][:, None] == users, other, table["item"][:, None] == items, other,
        table["age"][:, None] == ages,
    ])  # fmt: skip
    np.testing.assert_array_equal(X, want)
    assert shards.categories("user").tolist() == users.tolist()
    assert shards.encoding.names == ["user", "item", "age"]
    assert shards.classes[y].tolist() == table["stars"].tolist()
    np.testing.assert_array_equal(w, table["w"])
    np.testing.assert_array_equal(encoded(shards, table).toarray(), want)
    columns = frames(kind, {name: table[name] for name in shards.encoding.names})
    np.testing.assert_array_equal(
        shards.encoding.codes(columns).indices, np.flatnonzero(want).reshape(n, 3) % want.shape[1]
    )


def test_what_is_not_known_is_another_level(tmp_path):
    table = {"user": ["ann", "bob"], "item": [7, 3], "stars": [5, 4]}
    shards = write_shards(tmp_path, [table], **NAMES)
    new = {"user": ["bob", "annabel", None], "item": [5, 3, 7]}
    assert encoded(shards, new).indices.reshape(3, 2).tolist() == [[1, 5], [2, 3], [2, 4]]
    with pytest.raises(ValueError, match="lacks the columns .'item'"):
        shards.encoding.codes({"user": ["bob"]})


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("values", [["b", "a", "b"], [7, 5, 7]])
def test_missing_values_are_a_level_of_their_own(tmp_path, values, gap):
    table = {"a": [*values, gap], "y": [1, 2, 1, 2]}
    shards = write_shards(tmp_path, [table], one_hot=["a"], target="y")
    assert shards.categories("a").tolist() == sorted(set(values))
    assert everything(shards)[0].argmax(axis=1).tolist() == [1, 0, 1, 3]
    assert shards.feature_names[3] == "a=<missing>"


@pytest.mark.parametrize("bad", [np.array([2**63], np.uint64), [-np.inf], [b"x"]])
def test_values_that_are_no_levels(tmp_path, bad):
    table = {"a": bad, "y": [1] * len(bad)}
    with pytest.raises(ValueError, match="column 'a' is|column 'a' has|column 'a' holds"):
        write_shards(tmp_path, [table], one_hot=["a"], target="y")


def test_large_integers_are_exact(tmp_path):
    ids = np.array([2**63 - 1, 2**63 - 2, 2**53 + 1, 2**53, -(2**63)])
    shards = write_shards(tmp_path, [{"a": ids, "y": [1] * 5}], one_hot=["a"], target="y")
    assert shards.categories("a").tolist() == sorted(ids.tolist())
    assert encoded(shards, {"a": ids}).indices.tolist() == [4, 3, 2, 1, 0]
    assert encoded(shards, {"a": [2**53 + 2, 2**63 - 3]}).indices.tolist() == [5, 5]
    assert encoded(shards, {"a": []}).shape == (0, 6)


@given(st.lists(st.lists(st.sampled_from([0, 5, -1, 10**12, 2**63 - 1, -(2**63)]), max_size=5)))
def test_categories_are_numbered_as_unique_does(batches):
    distincts, batches = Distincts("a"), [batch for batch in batches if batch]
    codes = [distincts.number(Column("a", b, "levels").distinct()) for b in batches]
    if not batches:
        return
    field, places = distincts.learn()
    want, inverse = np.unique(np.concatenate(batches), return_inverse=True)
    np.testing.assert_array_equal(field.values, want)
    np.testing.assert_array_equal(places[np.concatenate(codes)], inverse)


def test_texts_that_numpy_would_confuse_or_pad(tmp_path):
    """NumPy's own strings lose a zero at the end, and are all as long as the longest one."""
    words = ["ann", "ann\0", "x" * 131_000, *map(str, range(30_000))]
    table = {"a": words, "y": [1] * len(words)}
    shards = write_shards(tmp_path, [table], one_hot=["a"], target="y")
    assert shards.categories("a").tolist() == sorted(words)
    assert encoded(shards, {"a": ["ann\0", "ann"]}).indices.tolist() == [
        sorted(words).index("ann\0"), sorted(words).index("ann"),
    ]  # fmt: skip
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2e6
    for batch, how in (
        ((np.ones((2, 1)), ["ann", "ann\0"]), {}),
        ({"a": ["x", "z"], "y": ["ann", "ann\0"]}, {"target": "y"}),
    ):
        with pytest.raises(ValueError, match=r"target 'y' holds 'ann\\x00'"):
            write_shards(tmp_path / "y", [batch], **how)


def test_two_fields_are_codes_sorted_within_a_shard(tmp_path):
    case = Case("codes", n=100)
    shards = write_shards(tmp_path, [case.table], **NAMES, rows_per_shard=30)
    assert shards.manifest.kind == "codes"
    first = 0
    for shard in shards:
        rows = slice(first, first + shard.n_rows)
        first += shard.n_rows
        order = np.argsort(case.table["user"][rows], kind="stable")
        np.testing.assert_array_equal(dense(shard), case.X[rows].toarray()[order])
        np.testing.assert_array_equal(dense(shard)[shard.own_rows()], case.X[rows].toarray())
    assert shards[0].matrix(False).pairs
    assert not list(tmp_path.glob("raw-*"))


def test_targets_weights_and_predictions_have_the_order_of_the_table(tmp_path):
    case = Case("codes", n=100)
    table = {**case.table, "w": np.arange(100.0) + 1}
    shards = write_shards(tmp_path, [table], **NAMES, weight="w", rows_per_shard=30)
    assert shards.targets().tolist() == table["stars"].tolist()
    assert shards.weights().tolist() == table["w"].tolist()
    model = FactorizationMachineOrdinalRegressor(random_state=0).fit(shards)
    np.testing.assert_allclose(model.predict(shards), model.predict(encoded(shards, table)))
    parts = shards.split(0.5, 0.5)
    rows = [part.weights().astype(int) - 1 for part in parts]
    assert sorted(np.concatenate(rows)) == list(range(100))
    for part, own in zip(parts, rows, strict=True):
        assert (np.diff(own) > 0).all()
        np.testing.assert_allclose(model.predict(part), model.predict(shards)[own])


def test_bytes_do_not_depend_on_batches(tmp_path):
    case = Case("codes", n=100)

    def written(folder, size):
        parts = [{k: c[i : i + size] for k, c in case.table.items()} for i in range(0, 100, size)]
        shards = write_shards(tmp_path / folder, parts, **NAMES, rows_per_shard=40)
        return shards.digest

    assert written("a", 100) == written("b", 7) == written("c", 1)


def test_codes_take_13_bytes_per_row_and_9_of_them_in_a_pass(tmp_path):
    rng = np.random.default_rng(0)
    n = 50000
    table = {"user": rng.integers(900, size=n), "item": rng.integers(90, size=n)}
    write_shards(tmp_path, [{**table, "stars": rng.integers(5, size=n)}], **NAMES)
    sizes = {f.name[7:].split(".")[0]: f.stat().st_size for f in tmp_path.glob("0*")}
    assert sum(sizes.values()) < 13.1 * n
    assert sizes["indices"] + sizes["y"] < 9.1 * n


def test_float_targets_are_levels_while_there_are_few(tmp_path):
    X = np.ones((600, 1))
    few, many = np.arange(600) % 9 / 2, np.arange(600) / 7
    assert write_shards(tmp_path / "a", [(X, few)]).classes.tolist() == np.unique(few).tolist()
    shards = write_shards(tmp_path / "b", [(X, many)])
    assert shards.classes is None
    np.testing.assert_array_equal(everything(shards)[1][:, 0], many)
    for name in "ab":
        y = everything(Shards(tmp_path / name))[1]
        assert len(y) == 600


def test_float32_stays(tmp_path):
    X = np.random.default_rng(0).random((30, 2), dtype=np.float32)
    shards = write_shards(tmp_path, [(X, np.arange(30) % 2)])
    assert shards[0].matrix(False).single


def test_csr_batches_may_grow_wider(tmp_path):
    a, b = sp.csr_array(np.eye(2)), sp.csr_array(np.eye(3))
    shards = write_shards(tmp_path, [(a, [0, 1]), (b, [1, 0, 1])])
    assert shards.n_features == 3
    np.testing.assert_array_equal(everything(shards)[0][:2], np.eye(2, 3))


def test_shards_and_a_shard_can_be_pickled(tmp_path):
    shards = Case("codes").write(tmp_path, 3)
    again = pickle.loads(pickle.dumps(shards))
    np.testing.assert_array_equal(everything(again)[0], everything(shards)[0])
    np.testing.assert_array_equal(dense(pickle.loads(pickle.dumps(shards[1]))), dense(shards[1]))


def test_numpy_reads_the_files(tmp_path):
    case = Case("dense", n=50)
    case.write(tmp_path, 1)
    np.testing.assert_array_equal(np.load(file_of(tmp_path, "000000-x")), case.X)


@pytest.mark.parametrize("fit_lower", [None, "augment"])
def test_nothing_is_copied(tmp_path, fit_lower):
    for kind in KINDS:
        shard = Case(kind).write(tmp_path / kind, 2)[0]
        X = shard.matrix(fit_lower == "augment")
        mapped = shard.arrays["x" if kind == "dense" else "indices"]
        used = X.array if kind == "dense" else X.arrays[1]
        assert np.shares_memory(used, mapped)


# --- what cannot be written ---


def test_what_is_in_the_folder_is_not_replaced_by_mistake(tmp_path):
    case = Case("dense", n=50)
    first = case.write(tmp_path, 1).digest
    with pytest.raises(ValueError, match="overwrite"):
        case.write(tmp_path, 2)
    assert Shards(tmp_path).digest == first
    shards = write_shards(tmp_path, [(case.X, case.y)], overwrite=True, rows_per_shard=10)
    assert len(shards) == 5
    assert len(list(tmp_path.iterdir())) == 11


@pytest.mark.parametrize(
    ("batches", "how", "message"),
    [
        ([], {}, "no rows"),
        ([(np.ones((2, 2)), [1, 2, 3])], {}, "different numbers of rows"),
        ([(np.ones((2, 2)), [1, 2]), (np.ones((2, 3)), [1, 2])], {}, "columns"),
        ([(np.array([[np.nan]]), [1])], {}, "NaN"),
        ([(np.ones((1, 1)), [np.inf])], {}, "infinite"),
        ([(np.ones((1, 1)), [1], [-1.0])], {}, "negative"),
        ([(np.ones((1, 1)), [1]), (np.ones((1, 1)), [1], [1.0])], {}, "alike"),
        ([np.ones((1, 1))], {}, "pairs"),
        ([{"user": [1], "stars": [1]}], {"one_hot": ["user"]}, "target"),
        ([{"user": [1]}], {"one_hot": ["user"], "target": "stars"}, "no column 'stars'"),
        ([{"a": [1.5, np.inf], "y": [1, 2]}], {"numeric": ["a"], "target": "y"}, "'a' is"),
        ([{"a": ["x", "z"], "y": [1.5, np.nan]}], {"target": "y"}, "row 1: column .y. is"),
        ([{"a": ["x", "z"], "y": ["b", None]}], {"target": "y"}, "row 1: column .y. is"),
        ([{"a": ["x"], "w": [None], "y": [1]}], {"target": "y", "weight": "w"}, "'w' is .*missing"),
        ([{"a": ["x"], "y": [1]}, {"b": ["x"], "y": [1]}], {"target": "y"}, "alike.*'[ab]'"),
        ([{"a": ["x"], "y": [1]}, {"a": [1], "y": [1]}], {"target": "y"}, "'a' holds numbers"),
        ([{"y": [1, 2]}], {"target": "y"}, "beside the target"),
        ([{"a": [1], "y": [1]}, {"a": ["b"], "y": [1]}], {"one_hot": ["a"], "target": "y"}, "mix"),
        ([{"a": [1], "y": [1]}], {"one_hot": ["a"], "numeric": ["a"], "target": "y"}, "twice"),
    ],
)  # fmt: skip
def test_bad_batches_are_refused_and_leave_nothing(tmp_path, batches, how, message):
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, batches, **how)
    assert not list(tmp_path.iterdir())


def test_rows_in_the_place_of_the_folder(tmp_path):
    with pytest.raises(TypeError, match=r"folder must be the path of a folder, got DataFrame"):
        write_shards(pd.DataFrame({"a": [1], "y": [1]}), tmp_path)
    with pytest.raises(TypeError, match="got dtype <U1; .*give a frame and name its target"):
        write_shards(tmp_path, [(np.array([["a"]]), [1])])


NAMES_OF_OTHERS = {
    "mine.npy", "20240101-temps.npy", "raw-1-x.npy", "000000-x.npy", "field-0.npy",
    "000000-x.0123456789abcdef.npy",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["pandas", "arrow table", "arrow batch"])
@pytest.mark.parametrize("name", ["user", "age", "stars", "w"])
def test_a_column_that_is_there_twice(tmp_path, name, kind):
    frame = pd.DataFrame({"user": [1, 2], "age": [1.0, 2.0], "stars": [1, 2], "w": [1.0, 1.0]})
    frame = pd.concat([frame, frame[[name]]], axis=1)
    if kind != "pandas":
        arrow = pytest.importorskip("pyarrow")
        frame = arrow.table([frame.iloc[:, i] for i in range(5)], names=list(frame.columns))
        frame = frame if kind == "arrow table" else frame.to_batches()[0]
    how = {"one_hot": ["user"], "numeric": ["age"], "target": "stars", "weight": "w"}
    with pytest.raises(ValueError, match=f"more than one column '{name}'"):
        write_shards(tmp_path, [frame], **how)


@pytest.mark.parametrize("kind", ["pandas", "polars", "mapping", "arrow table"])
@pytest.mark.parametrize("y", [[1.5, 2.5], [1, 2], ["a", "b"]])
@pytest.mark.parametrize("user", [[1, 2], ["x", "y"]])
def test_empty_batches_of_a_table(tmp_path, user, y, kind):
    table = {"user": user, "age": [1, 2], "stars": y}
    empty = [frames(kind, {name: np.array([], t) for name in table}) for t in (float, int, str)]
    batches = [*empty, frames(kind, table), *empty, frames(kind, table)]
    how = {"one_hot": ["user"], "numeric": ["age"], "target": "stars"}
    shards = write_shards(tmp_path, batches, **how)
    assert shards.targets().tolist() == y * 2
    assert shards.categories("user").tolist() == user
    with pytest.raises(ValueError, match="different numbers of rows"):
        write_shards(tmp_path / "b", [{**table, "stars": []}], **how)


@pytest.mark.parametrize("many", [False, True])
def test_empty_batches_of_pairs(tmp_path, many):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0.5, 1.5, 2.5])
    y = np.column_stack([y, y]) if many else y
    empty = [(X[:0], y[:0]), (X[:0], []), (sp.csr_array((0, 2)), [])]
    shards = write_shards(tmp_path, [*empty, (X, y), *empty])
    np.testing.assert_array_equal(shards.targets(), y)
    np.testing.assert_array_equal(everything(shards)[0], X)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((2, 0)), [1, 2], "at least one column"),
        (np.ones((2, 1)), np.ones((2, 0)), "target 'y' must be"),
        (np.ones((2, 1)), np.ones((2, 1, 1)), "target 'y' must be"),
        (np.ones((1, 1)), 1.0, "single number"),
    ],
)
def test_what_could_not_be_read_does_not_replace_what_can(tmp_path, X, y, message):
    digest = Case("dense", n=20).write(tmp_path, 1).digest
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, [(X, y)], overwrite=True)
    assert Shards(tmp_path, verify=True).digest == digest


def test_shares_and_folds_that_make_no_parts(tmp_path):
    shards = Case("dense", n=20).write(tmp_path, 1)
    for shares in ((), (0.5, 0.6), (-0.1,), (np.nan,)):
        with pytest.raises(ValueError, match="shares must be"):
            shards.split(*shares)
    for n_folds in (0, 1, -2):
        with pytest.raises(ValueError, match="n_folds must be at least"):
            shards.folds(n_folds)


@pytest.mark.parametrize("seed", [None, 7, np.int64(7), 2**128 - 1])
def test_parts_are_the_same_rows_whenever_they_are_read(tmp_path, seed):
    """A seed that is drawn anew with every use would make parts overlap."""
    shards = Case("codes").write(tmp_path, 3)
    for parts in (shards.split(0.5, 0.5, seed=seed), shards.folds(2, seed=seed)[0]):
        masks = [[shard.weights() for shard in part] for part in parts]
        for first, second in zip(*masks, strict=True):
            assert (first + second == 1).all()
    for wrong in (-1, 1.5, 2**128, np.random.default_rng()):
        with pytest.raises((TypeError, ValueError), match="seed must"):
            shards.split(0.5, 0.5, seed=wrong)


def test_parts_can_be_split_again(tmp_path):
    """By random numbers of their own: with the same seed, too."""
    shards = Case("codes").write(tmp_path, 3)
    for whole in shards.split(0.5, 0.5, seed=7):
        there = np.concatenate([shard.weights() for shard in whole])
        parts = [
            np.concatenate([shard.weights() for shard in part])
            for part in (*whole.split(0.5, 0.5, seed=7), *whole.folds(3, seed=7)[1])
        ]
        assert (parts[0] + parts[1] == there).all()
        assert (parts[2] + parts[3] == there).all()
        assert 0.4 < parts[0].sum() / there.sum() < 0.6
        assert 0.6 < parts[2].sum() / there.sum() < 0.75


def test_shards_are_taken_by_their_numbers(tmp_path):
    shards = Case("codes").write(tmp_path, 4)
    assert shards.take([2, 0, -1]).numbers == (2, 0, 3)
    assert shards.take(np.array([1, 3])).take([1]).numbers == (3,)
    for mask in ([True, False, True, False], np.array([True, False, True, False]), [0.0]):
        with pytest.raises(TypeError, match="numbers must be integers"):
            shards.take(mask)
    for wrong in ([4], [-5], [], 1):
        with pytest.raises(ValueError, match="numbers must"):
            shards.take(wrong)


def test_files_of_others_stay(tmp_path):
    case = Case("dense", n=50)
    for name in NAMES_OF_OTHERS:
        (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="no rows"):
        write_shards(tmp_path, [])
    assert {file.name for file in tmp_path.iterdir()} == NAMES_OF_OTHERS
    case.write(tmp_path, 1)
    shards = write_shards(tmp_path, [(case.X, case.y)], overwrite=True)
    with pytest.raises(ValueError, match="no rows"):
        write_shards(tmp_path, [], overwrite=True)
    files = {file.name for file in tmp_path.iterdir()}
    assert files == NAMES_OF_OTHERS | shards.manifest.file_names | {"manifest.json"}
    assert {(tmp_path / name).read_text() for name in NAMES_OF_OTHERS} == {"mine"}


def test_an_interrupted_write_leaves_the_old_shards(tmp_path):
    case = Case("dense", n=50)
    case.write(tmp_path, 1)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def batches():
        yield case.X, case.y
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path, batches(), overwrite=True, rows_per_shard=5)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    Shards(tmp_path, verify=True)


def test_an_interrupt_after_the_manifest_leaves_the_new_shards(tmp_path, monkeypatch):
    case = Case("dense", n=50)
    case.write(tmp_path, 1)
    replace = os.replace

    def interrupted(*names):
        replace(*names)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path, [(case.X, case.y)], overwrite=True, rows_per_shard=25)
    assert len(Shards(tmp_path, verify=True)) == 2


def test_shards_can_be_written_from_themselves(tmp_path):
    case = Case("dense", n=50)
    old = case.write(tmp_path, 3)
    batches = ((dense(shard), shard.targets()) for shard in old)
    new = write_shards(tmp_path, batches, overwrite=True)
    np.testing.assert_array_equal(everything(new)[0], case.X)


def test_files_are_on_the_disk_before_the_manifest(tmp_path, monkeypatch):
    synced, at_manifest = set(), []
    sync, replace = os.fsync, os.replace

    def record(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def record_manifest(*names):
        at_manifest.append(set(synced))
        replace(*names)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", record_manifest)
    shards = Case("codes").write(tmp_path, 3)
    *_, done = at_manifest  # the encoding is replaced, too
    assert {(tmp_path / name).stat().st_ino for name in shards.manifest.file_names} <= done


def test_shards_of_version_1_are_refused_and_stay(tmp_path):
    case = Case("dense", n=50)
    case.write(tmp_path, 1)
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace('"version": 4', '"version": 1'))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="version is 1.*write the shards again"):
        Shards(tmp_path)
    with pytest.raises(ValueError, match="no rows"):
        write_shards(tmp_path, [], overwrite=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / f"field-0.fastpoly-{'0a' * 8}.npy").write_bytes(b"of version 1")
    case_again = write_shards(tmp_path, [(case.X, case.y)], overwrite=True)
    assert len(list(tmp_path.iterdir())) == len(case_again.manifest.file_names) + 1


def test_a_forged_manifest_deletes_no_file_of_others(tmp_path):
    case = Case("dense", n=50)
    case.write(tmp_path, 1)
    (tmp_path / "thesis.tex").write_text("mine")
    content = manifest(tmp_path)
    content["shards"][0]["files"]["y"]["name"] = "thesis.tex"
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        Shards(tmp_path)
    write_shards(tmp_path, [(case.X, case.y)], overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_killed_write_leaves_no_manifest(tmp_path):
    code = f"""
import os, numpy as np
from fastpoly import write_shards
def batches():
    yield np.ones((50, 2)), np.arange(50) % 2
    os._exit(9)
write_shards({str(tmp_path)!r}, batches(), rows_per_shard=5)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False)
    assert done.returncode == 9
    assert list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="not written to its end"):
        Shards(tmp_path)
    assert len(Case("dense", n=50).write(tmp_path, 1)) == 1
    assert len(list(tmp_path.iterdir())) == 3


# --- files that are wrong ---


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def use(folder):
    """Open the shards and run one pass over them."""
    return shard_statistics(Shards(folder), n_threads=1)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_and_longer_files(tmp_path, kind):
    Case(kind).write(tmp_path, 3)
    for file in sorted(tmp_path.glob("000001-*.npy")):
        whole = file.read_bytes()
        for wrong in (whole[:-1], whole[:100], b"", whole + b"\0"):
            file.write_bytes(wrong)
            with pytest.raises(ValueError, match=f"shard 1, file .*{file.name}.* bytes"):
                Shards(tmp_path)
        file.write_bytes(whole)
    use(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file(tmp_path, kind):
    Case(kind).write(tmp_path, 3)
    for file in sorted(tmp_path.glob("000002-*.npy")):
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(ValueError, match=f"shard 2, file .*{file.name}"):
            Shards(tmp_path)
        file.write_bytes(content)


@pytest.mark.parametrize("kind", KINDS)
def test_any_flipped_bit_is_found_by_verify(tmp_path, kind):
    Case(kind).write(tmp_path, 3)
    rng = np.random.default_rng(0)
    Shards(tmp_path, verify=True)
    files = [f for f in sorted(tmp_path.glob("*.npy")) if "encoding" not in f.name]
    for file in files:
        whole = bytearray(file.read_bytes())
        for at in (0, 20, *rng.integers(128, len(whole), size=3)):
            wrong = whole.copy()
            wrong[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(wrong)
            with pytest.raises(ValueError, match=f"shard .*{file.name}"):
                Shards(tmp_path, verify=True)
        file.write_bytes(whole)


def test_any_flipped_bit_of_the_encoding_is_found_by_verify(tmp_path):
    Case("codes").write(tmp_path, 2)
    file = file_of(tmp_path, "encoding")
    whole = bytearray(file.read_bytes())
    for at in range(0, len(whole), 40):
        wrong = whole.copy()
        wrong[at] ^= 4
        file.write_bytes(wrong)
        with pytest.raises(ValueError, match=f"encoding, .*{file.name}"):
            Shards(tmp_path, verify=True)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("kinds", np.array(["levels:integer"])),
        ("kinds", np.array([["levels:integer"], ["x"]])),
        ("kinds", np.array(["levels:integer", "x" * 100_000])),
        ("kinds", np.array(["levels:integer", "list:integer"])),
        ("form", np.array("matrix")),
        ("form", np.array(7)),
        ("names", b"[" * 100_000),
        ("names", b'["user", "user"]'),
        ("names", b'["user"]'),
        ("names", b'{"user": 1}'),
        ("missing", np.array([False])),
        ("sizes", np.array([12, 9])),
        ("sizes", np.array([-1, 23])),
        ("sizes", np.array([2**62, 2**62])),
        ("integers", np.arange(22)[::-1].copy()),
        ("integers", np.arange(21)),
        ("frequencies", np.full(24, np.nan)),
        ("frequencies", np.full(23, 0.1)),
    ],
)
def test_a_forged_encoding(tmp_path, name, array):
    """It is not trusted: every array is checked, also against the others."""
    Case("codes").write(tmp_path, 2)
    array = np.frombuffer(array, np.uint8) if isinstance(array, bytes) else array
    content, path = manifest(tmp_path), file_of(tmp_path, "encoding")
    write_arrays(path, {**read_arrays(path), name: array})
    content["encoding"]["digest"] = digest_of(path)
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="encoding"):
        Shards(tmp_path).encoding  # noqa: B018
    with pytest.raises(ValueError, match="encoding"):
        Shards(tmp_path, verify=True)


def forge(folder, name, change):
    """Change an array of shard 1 and its digest, so that the file is wrong."""
    path = file_of(folder, f"000001-{name}")
    array = np.load(path)
    change(array)
    digest = write_array(path, array)
    content = manifest(folder)
    content["shards"][1]["files"][name]["digest"] = digest
    (folder / "manifest.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("kind", "name", "index", "value"),
    [
        ("codes", "indices", (0, 0), -1),
        ("codes", "indices", (5, 1), 24),
        ("codes", "indices", (5, 1), 2**31 - 1),
        ("codes", "indices", (5, 1), 0),
        ("codes", "y", 3, 3),
        ("codes", "y", 3, 255),
        ("csr", "indices", 0, -5),
        ("csr", "indices", 7, 10**9),
        ("csr", "indptr", 0, 1),
        ("csr", "indptr", 5, 10**12),
        ("csr", "indptr", 5, -1),
        ("csr", "indptr", -1, 0),
        ("csr", "data", 4, np.nan),
        ("dense", "x", (0, 0), np.inf),
    ],
)
def test_forged_numbers_are_refused_before_any_kernel_sees_them(tmp_path, kind, name, index, value):
    Case(kind).write(tmp_path, 3)

    def change(array):
        array[index] = value

    forge(tmp_path, name, change)
    with pytest.raises(ValueError, match="shard 1, file .*000001-"):
        use(tmp_path)
    with pytest.raises(ValueError, match="shard 1, file .*000001-"):
        Shards(tmp_path, verify=True)


def test_forged_pointers_whose_differences_overflow(tmp_path):
    Case("csr").write(tmp_path, 3)

    def change(indptr):
        indptr[1:3] = np.iinfo(np.int64).max, -2

    forge(tmp_path, "indptr", change)
    with pytest.raises(ValueError, match="never decrease"):
        use(tmp_path)


@pytest.mark.parametrize("value", [-1, 0, 10**9])
def test_forged_places(tmp_path, value):
    Case("codes").write(tmp_path, 3)
    forge(tmp_path, "places", lambda places: places.__setitem__(slice(3, 5), value))
    for use_places in (Shards(tmp_path).targets, lambda: Shards(tmp_path, verify=True)):
        with pytest.raises(ValueError, match="shard 1, file .*000001-places.*every row once"):
            use_places()


def test_forged_weights(tmp_path):
    write_shards(tmp_path, [(np.ones((6, 1)), [0, 1] * 3, np.ones(6))], rows_per_shard=3)
    forge(tmp_path, "w", lambda w: w.__setitem__(1, -1.0))
    with pytest.raises(ValueError, match="shard 1, file .*weights"):
        use(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=5), "version is 5"),
        (lambda m: m.update(sorted=1), "sorted"),
        (lambda m: m.update(format="other"), "format"),
        (lambda m: m.update(kind="zip"), "kind"),
        (lambda m: m.update(n_samples=10**12), "n_samples"),
        (lambda m: m.update(n_features=10**12), "n_features"),
        (lambda m: m.update(n_features=0), "n_features"),
        (lambda m: m.update(n_features=True), "n_features"),
        (lambda m: m.update(n_features=2**31 - 1), "n_features"),
        (lambda m: m.pop("n_fields"), "n_fields"),
        (lambda m: m.update(shards=[]), "number of shards"),
        (lambda m: m.update(n_fields=0), "n_fields"),
        (lambda m: m.update(encoding=None), "manifest"),
        (lambda m: m["encoding"].pop("digest"), "digest"),
        (lambda m: m["encoding"].update(digest="0" * 39), "digest"),
        (lambda m: m["encoding"].update(name="/etc/passwd"), "name"),
        (lambda m: m.update(classes=[[1], [2]]), "not a manifest|classes"),
        (lambda m: m.update(classes=[0, float("nan"), 2]), "classes"),
        (lambda m: m.update(classes=[0, float("inf")]), "classes"),
        (lambda m: m.update(classes=[0, 2, 1]), "classes"),
        (lambda m: m.update(classes=[0, 1, 1]), "classes"),
        (lambda m: m.update(classes=[0, 1, 1.0]), "classes"),
        (lambda m: m.update(classes=[0, 1, 10**30]), "classes"),
        (lambda m: m.update(classes=[0, 1, "two"]), "classes"),
        (lambda m: m.update(dtype="<f2"), "f2"),
        (lambda m: m["shards"][1].update(rows=10**9), "n_samples"),
        (lambda m: m["shards"][1].update(rows=-1), "rows"),
        (lambda m: m["shards"][1]["files"].pop("y"), "must have"),
        (lambda m: m["shards"][1]["files"]["y"].update(name="../../etc/passwd"), "name"),
        (lambda m: m["shards"][1]["files"]["y"].update(name=".."), "name"),
        (lambda m: m["shards"][1]["files"]["y"].update(digest="no"), "digest"),
    ],
)
def test_a_bad_manifest(tmp_path, change, message):
    Case("codes").write(tmp_path, 3)
    content = manifest(tmp_path)
    change(content)
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"manifest\.json.*({message})"):
        Shards(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100_000, "[" * 700 + "]" * 700, "\x00", '{"format": 1}']
)
def test_a_manifest_that_is_none(tmp_path, text):
    Case("dense", n=20).write(tmp_path, 1)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json"):
        Shards(tmp_path)


def test_an_array_of_absurd_size_is_not_mapped(tmp_path):
    Case("dense", n=20).write(tmp_path, 1)
    content = manifest(tmp_path)
    content["n_samples"] = content["shards"][0]["rows"] = 2**31 - 1
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    path = file_of(tmp_path, "000000-x")
    head, fields = io.BytesIO(), {"descr": "<f8", "fortran_order": False, "shape": (2**31 - 1, 8)}
    np.lib.format.write_array_header_1_0(head, fields)
    path.write_bytes(head.getvalue() + path.read_bytes()[128:])
    with pytest.raises(ValueError, match="bytes"):
        Shards(tmp_path)


def test_a_file_that_changes_before_it_is_used(tmp_path):
    shards = Case("codes").write(tmp_path, 2)
    path = file_of(tmp_path, "000001-indices")
    content = path.read_bytes()
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match="shard 1, file .*changed"):
        as_rows(shards)
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="shard 1, file .*changed"):
        as_rows(shards)
    path.unlink()
    with pytest.raises(ValueError, match="shard 1, file .*cannot be read"):
        as_rows(shards)


def test_threads_can_map_files_while_garbage_is_collected(tmp_path):
    """In Python 3.11 a parser of Python fails if the collector unmaps another file meanwhile."""
    shards = Case("dense", n=20).write(tmp_path, 1)
    thresholds = gc.get_threshold()

    def many():
        for _ in range(1000):
            cycle = [shards[0].map()]
            cycle.append(cycle)

    gc.set_threshold(7)
    try:
        with ThreadPoolExecutor(3) as pool:
            for found in [pool.submit(many) for _ in range(3)]:
                found.result()
    finally:
        gc.set_threshold(*thresholds)


def test_a_file_that_is_replaced_after_opening(tmp_path):
    shards = Case("codes").write(tmp_path, 2)
    FactorizationMachineOrdinalRegressor(random_state=0).fit(shards)
    kept = pickle.dumps((shards, shards[1]))
    path = file_of(tmp_path, "000001-indices")
    state, content = path.stat(), np.load(path)
    other = tmp_path / "other.npy"
    np.save(other, content[::-1].copy())
    os.replace(other, path)
    assert path.stat().st_size == state.st_size
    message = f"shard 1, file {re.escape(str(path))}.*changed"
    for again in range(2):  # the second time with the old times
        with pytest.raises(ValueError, match=message):
            FactorizationMachineOrdinalRegressor(random_state=0).fit(shards)
        with pytest.raises(ValueError, match=message):
            shards[1].matrix(False)
        with pytest.raises(ValueError, match=message):
            shards.targets()
        if not again:
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    # Another process compares sizes and whole seconds, and then whatever it saw itself.
    there, shard = pickle.loads(kept)
    os.utime(path, ns=(1, state.st_mtime_ns + 5 * 10**9))
    with pytest.raises(ValueError, match=message):
        shard.matrix(False)
    with pytest.raises(ValueError, match=message):
        there.targets()
    within = state.st_mtime_ns // 10**9 * 10**9
    os.utime(path, ns=(1, within))
    shard.matrix(False)
    os.utime(path, ns=(1, within + 10**6))
    with pytest.raises(ValueError, match=message):
        shard.check_unchanged()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_files_are_mapped_while_they_are_used(tmp_path):
    shards = Case("dense").write(tmp_path, 2)
    arrays = [shard.arrays for shard in shards]
    maps = Path("/proc/self/maps")
    assert maps.read_text().count(str(tmp_path)) == 4
    x = arrays[0]["x"][3:]
    for array in (x, x.T):
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            array.flags.writeable = True
    del shards, arrays, array
    assert maps.read_text().count(str(tmp_path)) == 1
    assert np.isfinite(x).all()


@pytest.mark.skipif(os.name == "nt", reason="POSIX devices and pipes")
@pytest.mark.parametrize("name", ["manifest.json", "*-y.*"])
def test_devices_and_pipes_are_refused_at_once(tmp_path, name):
    """At 5de635d a manifest without an end was read until the memory ended."""
    write_shards(tmp_path, [(np.eye(3), [0, 1, 0])])
    (file,) = tmp_path.glob(name)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is not a file but a device or pipe"):
        Shards(tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="is not a file but a device or pipe"):
        Shards(tmp_path)


def test_no_folder_at_all(tmp_path):
    with pytest.raises(ValueError, match="no folder of shards"):
        Shards(tmp_path / "nothing")


def test_a_manifest_without_the_right_to_read_it(tmp_path, monkeypatch):
    Case("dense", n=20).write(tmp_path, 1)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ValueError, match=r"manifest\.json.*Permission denied.*right") as error:
        Shards(tmp_path)
    assert "again" not in str(error.value)


# --- readers and the command ---


def ratings(path, n=300, delimiter=","):
    rng = np.random.default_rng(0)
    table = {
        "user": [f"u{i}" for i in rng.integers(20, size=n)],
        "item": rng.integers(9, size=n),
        "age": rng.random(n).round(3),
        "stars": rng.integers(1, 12, size=n),
    }
    lines = [delimiter.join(table)] + [
        delimiter.join(map(str, row)) for row in zip(*table.values(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return table


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_a_csv_file(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("fastpoly.rows.ingest.BLOCK_BYTES", 1000)
    table = ratings(tmp_path / "a.csv")
    if suffix == "csv.gz":
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    how = {**NAMES, "numeric": ["age"], "rows_per_shard": 64}
    shards = write_shards(tmp_path / "out", tmp_path / f"a.{suffix}", **how)
    want = write_shards(tmp_path / "want", [table], **how)
    assert shards.digest == want.digest
    assert shards.classes.tolist() == sorted(set(table["stars"]))


def write_csv(path, text, **how):
    """Shards of a CSV file with this text: categories a, numbers b, and the target y."""
    path.write_bytes(text.encode())
    names = {"one_hot": ["a"], "numeric": ["b"], "target": "y"}
    return write_shards(path.parent / "out", path, **{**names, **how}, overwrite=True)


@pytest.mark.parametrize("block", [9, 2**20])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["3"], "about line 4: Expected 3 columns, got 1"),
        (["1,2,3,4"], "about line 4: Expected 3 columns, got 4"),
        (["1,two,3"], "about line 4: column 'b': .*'two'.*holds numbers"),
        (["1,2,3"] * 9 + ["x,2,"], "about line 13: column 'y' is blank"),
        (["x,2,  "], "about line 4: column 'y' is blank"),
        (["1,inf,3"], "about line .* and below: column 'b' is infinite"),
        (["1,2,"], "about line 4: column 'y' is blank"),
    ],
)
def test_bad_csv_files(tmp_path, monkeypatch, rows, message, block):
    monkeypatch.setattr("fastpoly.rows.ingest.BLOCK_BYTES", block)
    text = "\n".join(["a,b,y", "1,2,3", "1,2,3", *rows])
    with pytest.raises(ValueError, match=rf"a\.csv, {message}"):
        write_csv(tmp_path / "a.csv", text)


def test_the_first_rows_of_a_csv_file_decide_what_a_target_is(tmp_path, monkeypatch):
    monkeypatch.setattr("fastpoly.rows.ingest.BLOCK_BYTES", 9)
    with pytest.raises(ValueError, match=r"line 4: column 'y': .*'4\.5'.*first rows"):
        write_csv(tmp_path / "a.csv", "a,b,y\n1,2,3\n1,2,3\n1,2,4.5\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,2\n", r"a\.csv has no column 'b'; it has \['a', 'y'\]"),
        ("a,b,a,y\n1,2,3,4\n", r"a\.csv has more than one column 'a'"),
        ("", r"a\.csv: Empty"),
        ("a,b,y\n", "no rows"),
    ],
)
def test_csv_files_without_what_is_needed(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        write_csv(tmp_path / "a.csv", text)


def test_a_csv_file_may_have_more_columns_quotes_and_a_byte_order_mark(tmp_path):
    text = '\ufeffb,c,a,c,y\n1,x,"new\nline, comma",,2\n'
    shards = write_csv(tmp_path / "a.csv", text)
    assert shards.categories("a").tolist() == ["new\nline, comma"]


def test_a_long_cell_of_a_csv_file_takes_little_memory(tmp_path):
    """As an array of NumPy's strings, this column has 31.7 GiB."""
    cells = "".join(f"{i},2,3\n" for i in range(65_000))
    shards = write_csv(tmp_path / "a.csv", f"a,b,y\n{'x' * 131_000},2,3\n{cells}")
    assert shards.categories("a").size == 65_001


def test_a_libsvm_file(tmp_path, monkeypatch):
    monkeypatch.setattr("fastpoly.rows.ingest.BLOCK_BYTES", 500)
    path = tmp_path / "a.libsvm"
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 7), density=0.4, rng=rng, format="csr")
    y = rng.integers(3, size=50)
    rows = [
        " ".join([str(y[i]), *(f"{j + 1}:{float(X[i, j])!r}" for j in range(7) if X[i, j])])
        for i in range(50)
    ]
    path.write_bytes(b"\xef\xbb\xbf# data\n" + "\n\n".join(rows).encode())
    shards = write_shards(tmp_path / "out", path, rows_per_shard=16)
    found, levels, _ = everything(shards)
    np.testing.assert_array_equal(found[:, :7], X.toarray()[:, : found.shape[1]])
    assert shards.classes[levels].tolist() == y.tolist()
    zipped = tmp_path / "a.svm.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert write_shards(tmp_path / "gz", [zipped], rows_per_shard=16).digest == shards.digest
    for wrong in ("1 0:1", "1 a:1", "x 1:1", "1 1:", "1 99999999999:1", "1 1", "1 3:1 2:1"):
        path.write_text(f"1 1:1\n{wrong}\n")
        with pytest.raises(ValueError, match=r"a\.libsvm, line 2: .*from 1"):
            write_shards(tmp_path / "bad", path)
    path.write_text("1 0:5\n")
    file = DataFile(path, zero_based=True)
    assert everything(write_shards(tmp_path / "zero", file))[0].tolist() == [[5.0]]


@pytest.mark.parametrize(
    ("file", "how", "message"),
    [
        (DataFile("a.xyz"), {}, "give its format"),
        (DataFile("a.csv", format="zip"), {}, "give its format"),
        (DataFile("a.csv"), {}, "name its target"),
        (DataFile("a.svm"), {"one_hot": ["a"], "target": "y"}, "a batch is a pair"),
        (DataFile("a.csv", texts=["b"]), {"one_hot": ["a"], "target": "y"}, "texts must be"),
        (DataFile("a.pq", texts=["a"]), {"one_hot": ["a"], "target": "y"}, "texts must be"),
    ],
)
def test_files_that_do_not_fit_the_call(tmp_path, monkeypatch, file, how, message):
    monkeypatch.chdir(tmp_path)
    Path("a.svm").write_text("1 1:1\n")
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path / "out", file, **how)


@pytest.mark.parametrize("kind", ["pandas", "polars", "mapping", "arrow table", "arrow batch"])
def test_one_table_in_place_of_batches(tmp_path, kind):
    table = {"user": [1, 2], "item": [3, 4], "stars": [5, 6]}
    shards = write_shards(tmp_path, frames(kind, table), **NAMES)
    assert shards.targets().tolist() == [5, 6]


def test_one_pair_in_place_of_batches(tmp_path):
    X = np.eye(3)
    shards = write_shards(tmp_path / "a", (X, [1, 2, 3]))
    assert shards.targets().tolist() == [1, 2, 3]
    two = write_shards(tmp_path / "b", ((X, [1, 2, 3]), (X, [1, 2, 3])))
    assert two.targets().tolist() == [1, 2, 3] * 2


def test_a_csr_array_with_too_many_columns(tmp_path):
    wide = sp.csr_array(([1.0], ([0], [2**31 + 4])), shape=(1, 2**31 + 5))
    with pytest.raises(ValueError, match="fewer than .*columns, got shape .1, 2147483653"):
        write_shards(tmp_path, [(wide, [1])])


def test_masked_entries_are_refused(tmp_path):
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    for pair in ((masked[:, None], [1, 2]), (np.ones((2, 1)), masked)):
        with pytest.raises(ValueError, match="masked"):
            write_shards(tmp_path, [pair])
    with pytest.raises(ValueError, match="row 1: column 'y' is blank or missing"):
        write_shards(tmp_path, {"a": [1, 2], "y": masked}, numeric=["a"], target="y")


def test_numbers_that_are_words_name_their_row(tmp_path):
    table = {"a": ["x", "y"], "y": [1, 2]}
    with pytest.raises(ValueError, match="row 0 .*column 'a' must hold numbers, got 'x'"):
        write_shards(tmp_path, table, numeric=["a"], target="y")


def test_files_ask_for_pyarrow_and_the_rest_does_without_it(tmp_path):
    run_python(f"""
import sys
sys.modules["pyarrow"] = None
import numpy as np
from fastpoly import FactorizationMachineClassifier, write_shards
X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
for n, targets in enumerate((y, y.astype(str), y / 3, y.tolist())):
    shards = write_shards({str(tmp_path)!r} + str(n), [(X, targets)], rows_per_shard=20)
    assert shards.targets().tolist() == list(targets)
FactorizationMachineClassifier().fit(shards).predict(shards)
try:
    write_shards({str(tmp_path)!r} + "t", {{"a": [1], "y": [2]}}, one_hot=["a"], target="y")
    write_shards({str(tmp_path)!r} + "f", "a.csv", target="y")
except ImportError as error:
    assert "pip install pyarrow" in str(error), error
else:
    raise AssertionError
""")


def test_the_command(tmp_path, capsys):
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        ratings(tmp_path / f"a.{suffix}", delimiter=delimiter)
    folder = str(tmp_path / "out")
    named = ["--one-hot", "user", "item", "--target", "stars", "--rows-per-shard", "100"]
    both = [str(tmp_path / "a.csv"), str(tmp_path / "a.tsv")]
    assert main([folder, *both, *named]) == 0
    assert "600 rows" in capsys.readouterr().out
    table = ratings(tmp_path / "b.csv")  # integers are categories, as in the table itself
    for name in ("user", "item"):
        known = Shards(folder).categories(name)
        np.testing.assert_array_equal(known, np.unique(table[name]))
    assert (
        encoded(Shards(folder), {"user": table["user"][:5], "item": table["item"][:5]}).sum() == 10
    )
    assert main([folder, "--verify"]) == 0
    assert main([folder, *both, *named, "--quiet"]) == 1
    assert "already holds shards" in capsys.readouterr().err
    assert main([folder, *both, *named, "--quiet", "--overwrite"]) == 0
    assert main([folder, *both, *named, "--quiet", "--overwrite", "--text", "usr"]) == 1
    assert "texts must be one-hot columns" in capsys.readouterr().err
    file_of(tmp_path / "out", "000001-y").write_bytes(b"")
    assert main([folder, "--verify"]) == 1
    assert "shard 1" in capsys.readouterr().err


def test_ids_that_are_not_plain_integers_are_strings(tmp_path, capsys):
    path, folder = tmp_path / "a.csv", str(tmp_path / "out")
    named = ["--one-hot", "a", "--target", "y", "--quiet", "--overwrite"]
    for cells in (["7", "007"], ["1", "1.0"], ["1", "x"], ["+1", "1"], ["1", "9" * 20]):
        path.write_text("a,y\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
        assert main([folder, str(path), *named]) == 0
        assert Shards(folder).categories("a").tolist() == sorted(cells)
        assert capsys.readouterr().out.endswith(": 2 rows, 3 features, 1 shard\n")
    path.write_text("a,y\n1,0\n10,1\n2,0\n")
    for more, want in (([], [1, 2, 10]), (["--text", "a"], ["1", "10", "2"])):
        assert main([folder, str(path), *named, *more]) == 0
        assert Shards(folder).categories("a").tolist() == want
    other = tmp_path / "b.csv"  # it does not matter which file has the first word
    other.write_text("a,y\nx,0\n")
    assert main([folder, str(path), str(other), *named]) == 0
    assert Shards(folder).categories("a").tolist() == ["1", "10", "2", "x"]


@pytest.mark.parametrize(
    "words", [["--one-hot", "a", "FOLDER"], ["FOLDER", "--one-hot", "a", "f.csv"], ["FOLDER"]]
)
def test_the_command_says_which_option_took_the_folder_or_the_files(words, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert re.search("--one-hot.*all names that follow", capsys.readouterr().err)


def test_the_command_reads_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    table = ratings(tmp_path / "a.csv")
    parquet.write_table(arrow.table(table), tmp_path / "a.parquet")
    named = ["--one-hot", "user", "item", "--target", "stars", "--quiet"]
    assert main([str(tmp_path / "out"), str(tmp_path / "a.parquet"), *named]) == 0
    want = write_shards(tmp_path / "want", [table], **NAMES)
    for a, b in zip(everything(Shards(tmp_path / "out")), everything(want), strict=True):
        np.testing.assert_array_equal(a, b)


# --- memory and open files ---


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_many_shards_need_few_open_files(tmp_path):
    """From Python 3.13 a file is closed when it is mapped: 120 files, and 64 descriptors."""
    code = f"""
import resource
import numpy as np
from fastpoly import write_shards
from fastpoly.rows import ShardDesign, as_rows

rng = np.random.default_rng(0)
table = {{name: rng.integers(5, size=80) for name in ("user", "item", "stars")}}
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
shards = write_shards({str(tmp_path)!r}, [table], one_hot=["user", "item"], target="stars",
                      rows_per_shard=2)
design = ShardDesign(shards, n_threads=2)
rows = as_rows(design)
rows.gradient(rows.empty_model())
assert len(rows.blocks.opened) == 40
"""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", code], check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    if sys.version_info >= (3, 13):
        assert done.returncode == 0, done.stderr
    else:
        assert re.search(r"shard \d+, file .*Too many open files.*ulimit -n", done.stderr)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_memory_is_bounded(tmp_path):
    """Anonymous memory: of the writer a few shards, of the rows at most 60 bytes each."""
    code = f"""
import numpy as np
from fastpoly import write_shards
from fastpoly.rows import ShardDesign, as_rows
from fastpoly.state import Model

n, size = 1_000_000, 2**16
def batches(n):
    rng = np.random.default_rng(0)
    for _ in range(0, n, size):
        yield {{"user": rng.integers(900, size=size), "item": rng.integers(300, size=size),
               "stars": rng.integers(5, size=size)}}

how = {{"one_hot": ["user", "item"], "target": "stars", "rows_per_shard": size}}
write_shards({str(tmp_path / "few")!r}, batches(1000), **how)  # imports, whose memory is not ours
before = anonymous()
shards = write_shards({str(tmp_path / "many")!r}, batches(n), **how)
assert anonymous() - before < 15e6, anonymous() - before
before, n = anonymous(), shards.n_samples  # without the modules that reading a table has imported
design = ShardDesign(shards, "anova", fit_lower="explicit", n_threads=1)
signs = np.where(np.arange(5)[:, None] <= np.arange(4), 1.0, -1.0)
rows = as_rows(design, signs, loss="binary_logistic")
d = rows.n_features
model = Model(np.full((5, d), 0.1), np.ones((5, 4)), np.zeros(4), np.zeros((d, 4)))
gamma = rows.gradient(model).gamma()
gamma.matvecs(np.ones((d, 4)))
used = anonymous() - before
assert used < 60 * n, used / n
x, g = np.zeros(5 * (d + 4) + 4 + 4 * d), np.zeros(5 * (d + 4) + 4 + 4 * d)
for i in range(30):
    rows.value_grad(x, 5, g)
    gamma.forms(np.ones(d))
    if i == 2:
        settled = anonymous()
assert anonymous() - settled < 2e6, anonymous() - settled
print(used / n)
"""
    # Arrow's own pools give memory back after a while, not at once.
    run_python(ANONYMOUS + code, {"ARROW_DEFAULT_MEMORY_POOL": "system"}, timeout=600)
