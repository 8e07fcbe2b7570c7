"""Models in files: a .npz archive of the arrays that the notes of `PolyModel` list."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.rows.files import FORMAT_VERSION
from fastpoly.storage.npz import read_arrays, write_arrays

# The kinds of dtype of each array in a file; PolyModel checks the shapes.
CLASS_KINDS = "Uifub"  # strings and numbers
_REQUIRED = {"H": "f", "V": "f", "intercept": "f", "activation": "U", "augment": "b"}
_OPTIONAL = {"linear": "f", "feature_names": "U", "output_names": "U", "task": "U"}
_KINDS = _REQUIRED | _OPTIONAL | {"classes": CLASS_KINDS, "level_values": "f"}


def write_model(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a model, all or nothing; those that are None are left out."""
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    write_arrays(path, {"format_version": np.asarray(FORMAT_VERSION, dtype=np.int64), **arrays})


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
    if version != FORMAT_VERSION:
        raise ValueError(f"it has format version {version}, this fastpoly reads {FORMAT_VERSION}")
    missing, unknown = _REQUIRED.keys() - arrays.keys(), arrays.keys() - _KINDS.keys()
    if missing or unknown:
        raise ValueError(f"missing arrays: {sorted(missing)}; unknown: {sorted(unknown)}")
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS[name]:
            raise ValueError(f"{name} must not have dtype {array.dtype}")
    return {
        name: a if a.dtype.kind == "f" or name == "classes" else a.tolist()
        for name, a in arrays.items()
    }
