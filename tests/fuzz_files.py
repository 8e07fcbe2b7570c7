"""Saved models and checkpoints, damaged and forged."""

import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from fuzz_inputs import COUNTS, rarely
from hypothesis import strategies as st

import fastpoly
from fastpoly import Design, PolyModel, conditional_gradient
from fastpoly.storage.checkpoint import load_state, save_state
from fastpoly.storage.npz import read_arrays, write_arrays


class Bomb:
    """An object that leaves a trace when it is unpickled."""

    unpickled = False

    def __reduce__(self):
        return _explode, ()


def _explode():
    Bomb.unpickled = True
    return np.zeros(1)


def damaged(draw, data):
    """The bytes of a file with a few errors."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        COUNTS["faults"] += 1
        how = draw(st.integers(0, 4))
        i = draw(st.integers(0, len(data))) if len(data) else 0
        if how == 0 and i < len(data):
            data[i] ^= 1 << draw(st.integers(0, 7))
        elif how == 1:
            del data[i:]
        elif how == 2:
            j = draw(st.integers(0, 40))
            data[i : i + j] = draw(st.binary(max_size=40))
        elif how == 3:
            data[i : i + 4] = b"\xff\xff\xff\xff"
        else:
            data += data[i : i + 200]
    return bytes(data)


def forged_archive(draw, path, names):
    """An archive that declares absurd shapes, compresses, or holds pickles."""
    COUNTS["faults"] += 1
    compression = draw(
        st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    )
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name in names:
            shape = draw(
                st.sampled_from(
                    (
                        "()",
                        "(2, 2)",
                        "(1000000000000, 1)",
                        f"({10**17}, {10**17})",
                        "(0, 5)",
                        "(2,)",
                    )
                )
            )
            dtype = draw(
                st.sampled_from(
                    ("'<f8'", "'<i8'", "'|O'", "'<U3'", "'|b1'", "'<U9999999'", "[('a', '<f8')]")
                )
            )
            header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
            header += b" " * (-(len(header) + 11) % 64) + b"\n"
            body = draw(
                st.sampled_from((b"", bytes(8), bytes(32), bytes(10**6), pickle.dumps(Bomb())))
            )
            archive.writestr(
                f"{name}.npy",
                b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body,
            )


MODEL = PolyModel(
    [[0.5, 0.5, 0.1]], [[1.0, -2.0]], [0.0, 1.0], linear=np.ones((2, 2)), augment=True,
    feature_names=["a", "b"], output_names=["x", "y"],
)  # fmt: skip


def _original(save):
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


MODEL_FILE = _original(MODEL.save)
STATE = next(
    state
    for state in conditional_gradient(Design(np.eye(3)), [0, 1, 1], alpha=0.01, random_state=0)
    if state.n_iter == 1
)
STATE_FILE = _original(lambda path: save_state(path, STATE, "problem"))
FIT_X, FIT_Y = np.arange(24.0).reshape(8, 3) % 7, np.arange(8) % 2


def checkpointed(path):
    return fastpoly.FactorizationMachineClassifier(
        n_components=2, random_state=0, alpha=0.01, checkpoint=path
    )


RUN_FILE = _original(lambda path: checkpointed(path).fit(FIT_X, FIT_Y))
FITTED = fastpoly.FactorizationMachineClassifier(n_components=2, random_state=0, alpha=0.01)
FITTED.fit(FIT_X, FIT_Y)


def _file(draw, folder, original):
    path = Path(folder) / "file"
    if rarely(draw, 4):
        with zipfile.ZipFile(folder + "/original", "w"):
            pass
        Path(folder, "original").write_bytes(original)
        with zipfile.ZipFile(folder + "/original") as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        forged_archive(draw, path, names[: draw(st.integers(1, len(names)))])
    elif rarely(draw, 20):
        COUNTS["faults"] += 1
        path.write_bytes(pickle.dumps(Bomb()))
    else:
        path.write_bytes(damaged(draw, original))
    return path


def load_model(draw):
    """PolyModel.load of damaged and forged files."""
    with tempfile.TemporaryDirectory() as folder:
        path = _file(draw, folder, MODEL_FILE)
        try:
            loaded = PolyModel.load(path)
        finally:
            assert not Bomb.unpickled
    assert loaded == MODEL  # only damage to bytes that are never read is not detected


def load_checkpoint(draw):
    """load_state, and fit from a checkpoint, of damaged and forged files."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            if draw(st.booleans()):
                loaded = load_state(_file(draw, folder, STATE_FILE), "problem")
                assert loaded.V.tobytes() == STATE.V.tobytes()
            else:
                model = checkpointed(_file(draw, folder, RUN_FILE))
                model.fit(FIT_X, FIT_Y)
                assert model.model_ == FITTED.model_
        finally:
            assert not Bomb.unpickled


FRAME = {
    "city": ["Oslo", "Rome"] * 20, "x": [0.5, 1.0, None, 3.0] * 10, "day": [1, 2, 3, 4] * 10,
    "tags": [["a", "b"], ["b"], [], ["c"]] * 10,
}  # fmt: skip


def _encoded(folder):
    frame_model = fastpoly.FactorizationMachineClassifier(random_state=0, alpha=0.1, shapes="steps")
    frame_model.fit(FRAME, np.arange(40) % 3 > 0).model_.save(Path(folder) / "file")
    return read_arrays(Path(folder) / "file")


with tempfile.TemporaryDirectory() as place:
    ENCODED = _encoded(place)
NUMBERS = (0, 1, -1, 2, 255, 2**31, 2**62, -(2**63), np.nan, np.inf, 1e308, -1e308, 5e-324)
TEXTS = ("", "codes", "plain", "hinges", "number", "levels:text", "list:integer", "levels:bool")


def changed(draw, array):
    """An array with another shape, dtype or entry."""
    COUNTS["faults"] += 1
    how = draw(st.integers(0, 5))
    if how == 0 and array.ndim:
        return array[:-1] if draw(st.booleans()) else np.concatenate([array, array[:1]])
    if how == 1:
        return array[None] if draw(st.booleans()) else array[..., None]
    if how == 2 and array.dtype.kind != "U":
        return array.astype(draw(st.sampled_from(("<f8", "<i8", "|u1", "|b1"))))
    entries = array.ravel().tolist()
    if entries:
        values = TEXTS if array.dtype.kind == "U" else NUMBERS[: 13 if how > 3 else 5]
        entries[draw(st.integers(0, len(entries) - 1))] = draw(st.sampled_from(values))
    with np.errstate(all="ignore"):
        found = np.array(entries, None if array.dtype.kind == "U" else np.float64)
        kept = found if array.dtype.kind == "U" else found.astype(array.dtype)
    return kept.reshape(array.shape)


def load_encoded(draw):
    """PolyModel.load of a model with an encoding, whose arrays are forged; it predicts or not."""
    arrays = dict(ENCODED)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(ENCODED)))
        arrays[name] = changed(draw, arrays[name])
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(Path(folder) / "file", arrays)
        model = PolyModel.load(Path(folder) / "file")
    assert np.isfinite(model.decision(FRAME)).all()
    assert np.isfinite(model.contributions(FRAME).values).all()
    assert repr(model.encoding)
