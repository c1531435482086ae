"""The numbers of a configuration from outside, before anything is built by them."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig

from limbeck.errors import ModelError
from limbeck.models.families import family_of

# Far beyond any encoder; with more, making the empty model alone would take all time and memory.
_MOST = {
    "layers": 1_000,
    "hidden": 1_000_000,
    "heads": 100_000,
    "ffn": 10_000_000,
    "vocabulary": 100_000_000,
    "positions": 100_000_000,
    "embedding": 1_000_000,
}
_COMMON = {"vocabulary": "vocab_size", "positions": "max_position_embeddings"}
"""What all families call alike."""


def check_numbers(name: str | Path, config: PreTrainedConfig) -> None:
    """Refuse a configuration whose numbers no model can have.

    Args:
        name: What the user calls the model, for the message.
        config: Its configuration.

    Raises:
        ModelError: for an unknown family; a number of layers, a width, a number of heads, tokens or positions that is
            no whole number from 1 up to a bound that no model reaches; or more heads than the width has room for.
    """
    try:
        fields = family_of(config).fields
    except ModelError as error:
        raise ModelError(f"The config.json of '{name}': {error}") from None
    for what, most in _MOST.items():
        field = _COMMON.get(what) or getattr(fields, what)
        value = None if field is None else getattr(config, field, None)
        if value is None and what in ("ffn", "positions", "embedding"):  # GPT-2's width may be unset, and so on.
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            shown = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "so long a number"
            raise ModelError(
                f"The config.json of '{name}' says {field or what} = {shown[:80]}; a model has a whole number of 1 to "
                f"{most:,} there: copy or download it again."
            )
    if getattr(config, "head_dim", None) is None and getattr(config, fields.heads) > getattr(config, fields.hidden):
        raise ModelError(
            f"The config.json of '{name}' has {getattr(config, fields.heads)} heads in a width of "
            f"{getattr(config, fields.hidden)}; copy or download it again."
        )
