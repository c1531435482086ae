"""Streams: named tensors of a model at a layer, and what can be asked for.

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

Scores over a vocabulary may be left unmade: a tap that is told so gives, for a batch whose `logits` would be many,
what makes them instead, at the same layer: `pre_logits`, the input of the output layer `[B, L, width]` or of the
scored tokens `[tokens, width]`, `output_weight` `[V, width]` and, where it has one, `output_bias` `[V]`, in the number
format that they are multiplied in.
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
        of: The teacher whose stream it is, where several teach.
    """

    name: str
    layer: int
    of: str = ""

    @property
    def kind(self) -> str:
        """The former name of `name`."""
        warnings.warn("A stream's kind is called its name: use key.name.", DeprecationWarning, stacklevel=2)
        return self.name

    def __str__(self) -> str:
        owner = f"{self.of}:" if self.of else ""
        return f"{owner}{self.name}@{self.layer}"


Streams: TypeAlias = "Mapping[StreamKey, Tensor]"
