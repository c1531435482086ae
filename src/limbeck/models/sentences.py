"""Sentence vectors: how a model makes one vector of a text.

The vectors of a text's tokens become one by a *pooling*. *Modules*, such as linear maps, may follow it. A *prompt* is
text that some models want before another, by its *role*: `query` or `document`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from limbeck.errors import ModelError, suggestion

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Ways to make one vector of those of a text's tokens; several joined by `+` are concatenated in their order."""
_DEFAULT_PROMPT = "default"
"""Name of the prompt of texts without a role, where no file names it."""

ModuleClass: TypeAlias = Literal["Dense", "LayerNorm", "Normalize"]

LIBRARY_CONFIG = "config_sentence_transformers.json"
"""The file in which sentence-transformers keeps prompts, similarity, and activations of cross-encoders."""
TRAINED_WIDTHS = "matryoshka_dimensions"
"""The key of `config.json` with the widths to which a model's vectors were trained to be cut, which vLLM reads too."""


@dataclass(frozen=True)
class SentenceModule:
    """A module behind the pooling.

    Attributes:
        class_name: `Dense` is activation(W x + b); with `residual`, x is added, or R x where the widths differ.
            `LayerNorm` is a layer norm, and `Normalize` scales to length one.
        folder: The folder of its weights; None for a module without weights.
        in_width: Width of its input; None for any width.
        out_width: Width of its output; None for that of the input.
        bias: Whether a `Dense` adds b.
        activation: Name of the activation of a `Dense`, a class in `torch.nn`.
        residual: Whether a `Dense` adds its input.
    """

    class_name: ModuleClass
    folder: Path | None = None
    in_width: int | None = None
    out_width: int | None = None
    bias: bool = True
    activation: str = "Tanh"
    residual: bool = False

    def __str__(self) -> str:
        """The class, and the widths of a map."""
        if self.class_name == "Dense" and self.in_width is not None:
            return f"Dense {self.in_width} → {self.out_width}"
        return self.class_name


@dataclass(frozen=True)
class SentencePooling:
    """How a sentence-embedding model makes one vector of a text: pooled tokens, modules behind them, prompts before.

    Attributes:
        pooling: One of `POOLINGS`, or several joined by `+`.
        normalize: Whether vectors are scaled to length one at the end.
        max_length: The longest input in tokens, special ones included, or None where the folder does not say.
        modules: The modules between the pooling and that scaling, in order.
        include_prompt: Whether the tokens of a prompt are pooled too.
        prompts: The prompts by name, which is usually a role such as `query`.
        default_prompt: The name of the prompt of texts without a role; None puts nothing before them.
        similarity: The measure by which sentence-transformers compares vectors (`similarity_fn_name`); None if unknown.
        truncate_dim: The number of components to which sentence-transformers cuts vectors; None where it does not.
    """

    pooling: str
    normalize: bool
    max_length: int | None
    modules: tuple[SentenceModule, ...] = ()
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = None
    truncate_dim: int | None = None

    def width(self, hidden: int) -> int:
        """Return the width of the vectors, given that of the hidden states."""
        width = self.pooled_width(hidden)
        for module in self.modules:
            if module.out_width is not None:
                width = module.out_width
        return width

    def pooled_width(self, hidden: int) -> int:
        """Return the width of the pooled tokens, given that of the hidden states."""
        return hidden * len(self.pooling.split("+"))

    def fits(self, hidden: int) -> bool:
        """Whether the modules behind the pooling take the vectors of a model of this hidden width."""
        for module in self.modules:
            if module.in_width is not None:
                return module.in_width == self.pooled_width(hidden)
        return True

    def check_fits(self, name: str | Path, hidden: int) -> None:
        """Refuse modules that take vectors of another width than the Transformer gives.

        Raises:
            ModelError: naming the model.
        """
        if not self.fits(hidden):
            raise ModelError(
                f"The modules of '{name}' ({self}) do not fit its Transformer of width {hidden}; copy or download the "
                "model again."
            )

    def check_whole(self, name: str | Path, hidden: int) -> None:
        """Refuse a model whose vectors sentence-transformers cuts to fewer components, since limbeck makes whole ones.

        Raises:
            ModelError: naming the model.
        """
        if self.truncate_dim is not None and self.truncate_dim < self.width(hidden):
            raise ModelError(
                f"'{name}' cuts its vectors by truncate_dim {self.truncate_dim}, but limbeck reads whole vectors. "
                f"Copy the model, and set truncate_dim to null in its {LIBRARY_CONFIG}. For a student whose "
                "vectors can be cut, set the method's option 'truncate'."
            )

    def without_prompts(self) -> SentencePooling:
        """Return the same for a model that reads texts as they are."""
        return self.with_prompts(())

    def with_prompts(self, texts: Collection[str]) -> SentencePooling:
        """Return the same without the prompts whose text is not among `texts`, for a model that learned only these."""
        prompts = {name: text for name, text in self.prompts.items() if text in texts}
        default_prompt = self.default_prompt
        if default_prompt not in prompts:
            default_prompt = None
        return replace(self, prompts=prompts, default_prompt=default_prompt)

    def __str__(self) -> str:
        """The pooling, and the modules behind it."""
        return " + ".join([self.pooling, *map(str, self.modules)])

    @property
    def nonempty_prompts(self) -> dict[str, str]:
        """The prompts that are not empty, the default one first."""
        names = sorted(self.prompts, key=lambda name: name != self.default_prompt)
        return {name: self.prompts[name] for name in names if self.prompts[name]}

    def prompt(self, role: str | None = None) -> str:
        """Return the text that is put before a text.

        Args:
            role: `query`, `document`, another name of `prompts`, or None for the default prompt.

        Returns:
            The prompt of the role, by one of its names (see `prompt_names`); empty for a role without a prompt.
        """
        if role is None:
            return self.prompts.get(self.default_prompt or "", "")
        for name in prompt_names(role):
            if name in self.prompts:
                return self.prompts[name]
        return ""


def prompt_names(role: str | None) -> tuple[str, ...]:
    """Return the names that the prompt of a role may have; the first that a model has decides."""
    if role is None:
        return ()
    if role == "document":
        return ("document", "passage", "corpus")
    return (role,)


def trained_widths(config: PreTrainedConfig) -> tuple[int, ...]:
    """Return the widths to which a model's vectors were trained to be cut, if it names any; the widest first."""
    named_widths = getattr(config, TRAINED_WIDTHS, None)
    if not isinstance(named_widths, list):
        return ()
    # isinstance would accept true and false, which are whole numbers in Python.
    widths = {width for width in named_widths if type(width) is int and width > 0}
    return tuple(sorted(widths, reverse=True))


def finished_pooling(described: SentencePooling | None, pooling: str | None = None) -> SentencePooling:
    """Return how a model makes its vectors: as its files say, else the mean of its tokens, scaled to length one.

    Args:
        described: How its files say that it makes them; None where they do not.
        pooling: A pooling that takes the place of the described one; None keeps that.
    """
    sentence = described
    if sentence is None:
        sentence = SentencePooling("mean", normalize=True, max_length=None)
    if pooling is None:
        return sentence
    return replace(sentence, pooling=pooling)


def pooling_with_prompts(prompts: Mapping[str, str]) -> SentencePooling:
    """Return how a model makes its vectors of which only the prompts are known; see `finished_pooling`.

    Args:
        prompts: The text before texts of each role; under `default` that of texts without a role.
    """
    default_prompt = _DEFAULT_PROMPT if _DEFAULT_PROMPT in prompts else None
    return replace(finished_pooling(None), prompts=dict(prompts), default_prompt=default_prompt)


def check_pooling(pooling: str) -> None:
    """Refuse a pooling that is neither one of `POOLINGS` nor several joined by `+`.

    Raises:
        ModelError: naming the nearest.
    """
    for mode in pooling.split("+"):
        if mode not in POOLINGS:
            raise ModelError(f"Unknown pooling '{mode}'.{suggestion(mode, POOLINGS)}")
