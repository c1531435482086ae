"""Rows of a store in files: the number formats that they are kept in, and safetensors that are read as memory maps.

A file has a tensor `key`, int64 `[rows]`, and for each stream a tensor of its name, `[rows, width]`. With `int8` it has
`STREAM.scale` too, float32 `[rows]`: a number is its byte times the scale of its row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from limbeck.errors import ModelError

KEY = "key"
"""Tensor of the keys of the rows' texts."""
_SCALE_SUFFIX = ".scale"
_LARGEST_BYTE = 127
_HEADER_LENGTH_BYTES = 8
_DTYPES = {"I64": np.int64, "F32": np.float32, "F16": np.float16, "I8": np.int8}

Tensors: TypeAlias = dict[str, NDArray[np.generic]]
"""The tensors of a file by their names."""


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a stream are kept.

    Args:
        name: Its name.
        dtype: The type of a number.
        has_scale: Whether every row has a scale.
    """

    name: str
    dtype: type[np.generic]
    has_scale: bool = False

    def row_bytes(self, streams: Mapping[str, int]) -> int:
        """Return the bytes of a row with streams of some widths, its key included."""
        size = np.dtype(np.int64).itemsize
        for width in streams.values():
            size += width * np.dtype(self.dtype).itemsize
            if self.has_scale:
                size += np.dtype(np.float32).itemsize
        return size

    def encode(self, stream: str, values: NDArray[np.float32]) -> Tensors:
        """Return the tensors that hold a stream.

        Args:
            stream: Its name.
            values: Its numbers, `[rows, width]`.

        Raises:
            ModelError: for a number that is not finite, or too large for float16, and a row that is zero in float16.
        """
        if not np.isfinite(values).all():
            raise ModelError(
                f"The teacher gave a {stream} with numbers that are not finite, which no student can learn; check "
                "the teacher's weights, or compute in float32."
            )
        # In 8 bits each row has a scale, by which its largest number becomes 127, the largest byte.
        if self.has_scale:
            largest = np.abs(values).max(axis=1)
            # A row of zeros has the scale 1, to avoid a division by 0.
            scale = np.where(largest > 0, largest / _LARGEST_BYTE, 1).astype(np.float32)
            return {stream: np.rint(values / scale[:, None]).astype(np.int8), f"{stream}{_SCALE_SUFFIX}": scale}
        if np.abs(values).max(initial=0) > np.finfo(self.dtype).max:  # type: ignore[type-var]
            raise ModelError(
                f"The teacher gave a {stream} with a number too large for {self.name}; store with --format float32."
            )
        stored_values = values.astype(self.dtype)
        has_vanished = values.any(axis=1) & ~stored_values.any(axis=1)
        if has_vanished.any():
            raise ModelError(
                f"The teacher gave a {stream} whose numbers are too small for {self.name}; store with --format float32."
            )
        return {stream: stored_values}

    def decode(self, stream: str, tensors: Tensors, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the numbers of some rows of a stream, `[rows, width]`.

        Args:
            stream: Its name.
            tensors: The tensors of the file.
            rows: Indices of the rows.
        """
        values = np.asarray(tensors[stream][rows], dtype=np.float32)
        if self.has_scale:
            scale = np.asarray(tensors[f"{stream}{_SCALE_SUFFIX}"][rows], dtype=np.float32)
            values *= scale[:, None]
        return values


NUMBER_FORMATS = {
    "float32": NumberFormat("float32", np.float32),
    "float16": NumberFormat("float16", np.float16),
    "int8": NumberFormat("int8", np.int8, has_scale=True),
}
"""The number formats by name."""


def map_tensors(path: Path, widths: Mapping[str, int]) -> Tensors:
    """Open the tensors of a file as memory maps, so that only the rows that are read take memory.

    Args:
        path: The file.
        widths: The width of each stream that it must have.

    Raises:
        ModelError: for a file that is no safetensors, or lacks a stream of that width.
    """
    # The library checks the header, and that the tensors fill the file. It is opened for this check alone.
    try:
        with safe_open(str(path), framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"The store's file '{path}' cannot be read ({str(error).splitlines()[0]}); copy the store again."
        ) from None

    # A file of safetensors begins with the length of its header. The header is a JSON object with the type, the shape
    # and the place of each tensor, counted from the end of the header. Then come the numbers.
    with path.open("rb") as file:
        header_length = int.from_bytes(file.read(_HEADER_LENGTH_BYTES), "little")
        header = json.loads(file.read(header_length))
    begin_of_data = _HEADER_LENGTH_BYTES + header_length
    tensors: Tensors = {}
    for name, facts in header.items():
        # A tensor of another type is none of a store; `check_widths` reports a stream that is missing then.
        if name == "__metadata__" or facts["dtype"] not in _DTYPES:
            continue
        begin, _ = facts["data_offsets"]
        tensors[name] = np.memmap(
            path, dtype=_DTYPES[facts["dtype"]], mode="r", offset=begin_of_data + begin, shape=tuple(facts["shape"])
        )
    check_widths(tensors, widths, f"The store's file '{path}'")
    return tensors


def check_widths(tensors: Tensors, widths: Mapping[str, int], owner: str) -> None:
    """Refuse tensors that lack a stream, or have one whose rows are not those of the keys.

    Args:
        tensors: The tensors by name.
        widths: The width of each stream.
        owner: Whose tensors they are, for the message.

    Raises:
        ModelError: naming the tensor that is missing or has another shape.
    """
    rows = len(tensors[KEY]) if KEY in tensors else 0
    for name, width in widths.items():
        shape = tensors[name].shape if name in tensors else None
        if shape != (rows, width):
            actual = "no such tensor" if shape is None else f"the shape {list(shape)}"
            raise ModelError(f"{owner} needs a tensor '{name}' of the shape [{rows}, {width}], but has {actual}.")
