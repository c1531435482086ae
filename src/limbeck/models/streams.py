"""Streams: the named tensors of a model at its layers, which methods compare between student and teacher.

Layers are numbered as in `hidden_states`: 0 is the embedding output, 1..N are the blocks. Every per-token stream is
`[B, L, width]` with the heads concatenated.

| name | layer | what |
|---|---|---|
| embedding | 0 | the input of the first block |
| hidden | 1..N | a block's output; at N what the model returns as its last hidden state |
| query, key, value | 1..N | the projections as attention sees them (after rotary embedding where there is one) |
| context | 1..N | the multi-head attention output, before its output projection |
| cls | 0..N | the first real token's vector `[B, width]`, of the embedding output or a block's |
| pooled | N | one vector a row `[B, width]`: the pooled last hidden state |
| vector | N | one vector a row `[B, width]` as the model is used: pooled, and through the modules behind the pooling |
| logits | N | the head's scores `[B, L, V]` or `[B, classes]`; `[B, 2, L]` for an answer's start and end |

Logits over a vocabulary take much memory, so a tap may leave them unmade (`StreamTap`, `from_hidden`). In place of
`logits` it then gives the tensors that make them, at the same layer and in the number format of their product:
`pre_logits`, the input of the output layer, `[B, L, width]` or `[tokens, width]` for scored tokens alone;
`output_weight`, `[V, width]`; and `output_bias`, `[V]`, if the layer has one.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

STREAM_NAMES = ("embedding", "hidden", "query", "key", "value", "context", "cls", "pooled", "vector", "logits")
OF_ATTENTION = ("query", "key", "value", "context")
"""Names of streams inside a block's attention."""
OF_SENTENCES = ("pooled", "vector")
"""Names of streams with one vector for a row."""
OF_OUTPUT = (*OF_SENTENCES, "logits")
"""Names of streams that are made of what a whole model returns."""


class StreamKey(NamedTuple):
    """The key of one stream.

    Attributes:
        name: One of `STREAM_NAMES`.
        layer: Its layer.
        of: The name of the teacher whose stream it is, if there are several; else empty.
    """

    name: str
    layer: int
    of: str = ""

    @property
    def kind(self) -> str:
        """The former name of `name`."""
        warnings.warn(
            "key.kind of a stream is deprecated; use key.name, which has the same value.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.name

    def __str__(self) -> str:
        owner = f"{self.of}:" if self.of else ""
        return f"{owner}{self.name}@{self.layer}"


Streams: TypeAlias = "Mapping[StreamKey, Tensor]"
