"""The recorder behind a tap: what to keep of a running forward, and where the forward may stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from limbeck.models.streams import ATTENTION_KINDS, StreamKey


class StopForward(Exception):  # noqa: N818 - control flow, not an error
    """Leaves a block whose remaining output nobody asked for; caught inside that block."""


@dataclass
class Recorder:
    """Keeps the requested streams of one forward.

    Args:
        wanted: The streams to keep.
        last_layer: The deepest layer that has to run.
        stop_after: The part of `last_layer` that is needed: `"projections"`, `"context"` or `"block"`.
    """

    wanted: frozenset[StreamKey]
    last_layer: int
    stop_after: str
    layer: int = 0
    active: bool = False
    lengths: list[int] | None = None
    found: dict[StreamKey, Tensor] = field(default_factory=dict)

    @classmethod
    def plan(cls, keys: Iterable[StreamKey], depth: int) -> Recorder:
        """Work out the deepest layer and part of it that `keys` need.

        `pooled` and `logits` need the whole model; `embedding` needs no block at all.
        """
        wanted = frozenset(keys)
        reach = [depth if key.kind in ("pooled", "logits") else key.layer for key in wanted]
        last_layer = max(reach, default=0)
        kinds = {key.kind for key, layer in zip(wanted, reach, strict=True) if layer == last_layer}
        beyond_projections = "context" if "context" in kinds else "projections"
        return cls(wanted, last_layer, "block" if kinds - set(ATTENTION_KINDS) else beyond_projections)

    def start(self, lengths: list[int] | None = None) -> None:
        """Begin a forward with nothing found.

        Args:
            lengths: Tokens of each sample, where they come packed in one row.
        """
        self.layer = 0
        self.lengths = lengths
        self.active = True
        self.found = {}

    def finish(self) -> dict[StreamKey, Tensor]:
        """End the forward and hand over what was found, keeping no reference to it."""
        found, self.found, self.active = self.found, {}, False
        return found

    def wants(self, kind: str, layer: int) -> bool:
        """Whether a stream of the running forward is to be kept."""
        return self.active and (kind, layer) in self.wanted

    def record(self, kind: str, layer: int, tensor: Tensor) -> None:
        """Keep `tensor` if it was asked for."""
        if self.wants(kind, layer):
            self.found[StreamKey(kind, layer)] = tensor

    def stops_at(self, layer: int, after: str) -> bool:
        """Whether nothing beyond `after` in `layer` is needed."""
        return layer == self.last_layer and self.stop_after == after
