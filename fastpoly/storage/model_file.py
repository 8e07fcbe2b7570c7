"""Models in files: a .npz archive of the arrays that the notes of `PolyModel` list."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.storage.npz import read_arrays, write_arrays
from fastpoly.tables import Encoding

MODEL_VERSION = 2  # 1 had neither fields nor background
# The type of each array in a file, as a kind or in full; PolyModel checks the shapes.
_REQUIRED = {"H": "<f8", "V": "<f8", "intercept": "<f8", "activation": "U", "augment": "b"}
_OPTIONAL = {"linear": "<f8", "feature_names": "U", "output_names": "U", "task": "U"}
_NUMBERS = ("H", "V", "intercept", "linear", "classes", "level_values", "fields", "background")
_ENCODING = "encoding."  # before the names of the arrays of an encoding
_TYPES = _REQUIRED | _OPTIONAL | {"classes": "Uifub", "level_values": "<f8", "log_odds": "b"}
_TYPES |= {"fields": "i", "background": "<f8"}


def write_model(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a model, all or nothing; None and log_odds=True are left out."""
    encoding = fields.get("encoding")
    left_out = () if encoding is None else ("encoding", "feature_names", "fields")
    arrays = {
        name: np.asarray(value)
        for name, value in fields.items()
        if value is not None and name not in left_out
    }
    if encoding is not None:
        arrays |= {f"{_ENCODING}{name}": array for name, array in encoding.arrays().items()}
    if arrays.get("log_odds"):
        del arrays["log_odds"]
    classes = arrays.get("classes", np.empty(0))
    if classes.dtype.kind == "O":
        if not all(isinstance(each, str) and "\0" not in each for each in classes):
            raise TypeError(
                "a file holds classes that are numbers or strings without NUL; to save positions "
                "in their place: dataclasses.replace(model, classes=None).save(path)"
            )
        arrays["classes"] = classes.astype(str)
    write_arrays(path, {"format_version": np.asarray(MODEL_VERSION, dtype=np.int64), **arrays})


def read_model(path: str | os.PathLike[str], build: Callable[..., Any]) -> Any:
    """The model that `build` makes of the fields in a file; nothing is unpickled.

    ValueError if the file is damaged, of another version, or if `build` refuses the fields.
    """
    arrays = read_arrays(path)
    try:
        return build(**_fields(arrays))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} does not hold a PolyModel: {error}") from error


def _fields(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields of a model from the arrays of a file."""
    version = arrays.pop("format_version", None)
    if version is None or version.dtype.kind != "i" or version.ndim:
        raise ValueError("it has no integer format_version")
    if not 1 <= version <= MODEL_VERSION:
        raise ValueError(
            f"it has format version {version}, this fastpoly reads 1 to {MODEL_VERSION}"
        )
    parts = {name: arrays.pop(name) for name in list(arrays) if name.startswith(_ENCODING)}
    encoding = None
    if parts:
        parts = {name.removeprefix(_ENCODING): array for name, array in parts.items()}
        encoding = Encoding.from_arrays(parts)
    missing, unknown = _REQUIRED.keys() - arrays.keys(), arrays.keys() - _TYPES.keys()
    if missing or unknown:
        raise ValueError(f"missing arrays: {sorted(missing)}; unknown: {sorted(unknown)}")
    for name, array in arrays.items():
        spelled = array.dtype.str if _TYPES[name] == "<f8" else array.dtype.kind
        if spelled not in _TYPES[name]:
            raise ValueError(f"{name} must not have dtype {array.dtype}")
    # Arrays stay arrays; names, texts and flags become plain Python values.
    fields = {name: a if name in _NUMBERS else a.tolist() for name, a in arrays.items()}
    return fields | {"encoding": encoding}
