"""The source of an export: a run's student, a model's folder, an installed package or a Hub name, and its outputs."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from limbeck.errors import ModelError
from limbeck.evaluation.inference import encoder_of, longest_input
from limbeck.models.heads import AnyHead
from limbeck.models.loading import check_fits_model, load_config, load_model, load_tokenizer
from limbeck.models.locating import SentencePooling, resolve_model, sentence_pooling
from limbeck.models.taps import pool

ExportHead: TypeAlias = AnyHead
EXPORT_HEADS: tuple[ExportHead, ...] = get_args(ExportHead)
RUN_STUDENT = "student"
_KNOWN_MODULES = {"Transformer", "Pooling", "Normalize"}
_ENDS: dict[str, ExportHead] = {
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
}


@dataclass(frozen=True)
class Source:
    """A model to export, in float32 and eval mode on the CPU, as its files were loaded: nothing taps it.

    Attributes:
        name: Where it is: a folder, `package:NAME` or a Hub name.
        model: With its head, without its pooler.
        tokenizer: Its tokenizer.
        head: Its task head; None for a Transformer alone.
        sentence: How it makes sentence vectors, if its files say so.
        longest: The longest input in tokens that tokenizer, model and `sentence` allow.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    head: ExportHead | None
    sentence: SentencePooling | None
    longest: int


def locate(name: str | Path) -> str:
    """Return where the model is: for a run's folder its student, anything else unchanged.

    Raises:
        ModelError: for the folder of a run that has no student yet.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir() or (folder / "config.json").is_file():
        return str(name)
    if (folder / RUN_STUDENT / "config.json").is_file():
        return str(folder / RUN_STUDENT)
    if (folder / "run.json").is_file():
        raise ModelError(f"The run in '{name}' has no student yet; finish it: limbeck distill --resume --output {name}")
    return str(name)


def open_source(name: str | Path) -> Source:
    """Load the model to export.

    A folder that makes sentence vectors is loaded without a head, whatever its checkpoint holds besides.

    Args:
        name: A run's folder, a model's folder, `package:NAME` or a Hub name.

    Raises:
        ModelError: for everything that `load_model` and `load_tokenizer` refuse, and for a sentence-transformers
            folder with modules other than Transformer, Pooling and Normalize.
    """
    located = locate(name)
    config = load_config(located)
    check_modules(located)
    sentence = sentence_pooling(located)
    head = None if sentence is not None else head_of(config)
    model = load_weights(located, head)
    tokenizer = load_tokenizer(located)
    check_fits_model(tokenizer, config.vocab_size)
    limits = [tokenizer.model_max_length, longest_input(encoder_of(model)) or tokenizer.model_max_length]
    if sentence is not None and sentence.max_length is not None:
        limits.append(sentence.max_length)
    return Source(located, model.eval(), tokenizer, head, sentence, int(min(limits)))


def head_of(config: PreTrainedConfig) -> ExportHead | None:
    """Return the head that a checkpoint was saved with, by its configuration; None where it is none that is known."""
    saved_by = (list(getattr(config, "architectures", None) or []) or [""])[0]
    for end, head in _ENDS.items():
        if saved_by.endswith(end):
            return "regression" if head == "classification" and config.num_labels == 1 else head
    return None


def load_weights(
    name: str, head: ExportHead | None, *, dtype: str | None = None, pooler: bool = False
) -> PreTrainedModel:
    """Load a model with its head.

    Args:
        name: As in `load_model`.
        head: The head.
        dtype: Of the weights; None is float32.
        pooler: Keep the pooler of a model without a head, where its checkpoint has one.

    Raises:
        ModelError: see `load_model`.
    """
    return load_model(name, dtype=dtype, head=head, pooler=pooler and head is None and _stores_pooler(name))


def check_modules(name: str) -> None:
    """Refuse a sentence-transformers folder whose vectors are made by more than pooling and normalising.

    Raises:
        ModelError: naming the module.
    """
    for module in _modules(name):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind not in _KNOWN_MODULES:
            raise ModelError(
                f"'{name}' makes its vectors with a {kind} module, which cannot be exported; only Transformer, Pooling "
                "and Normalize can."
            )


def _modules(name: str) -> list[dict[str, Any]]:
    resolved = Path(resolve_model(name))
    for folder in (resolved, resolved.parent):
        if (folder / "modules.json").is_file():
            try:
                found = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return []  # `sentence_pooling` refuses it in words.
            return [module for module in found if isinstance(module, dict)] if isinstance(found, list) else []
    return []


def _stores_pooler(name: str) -> bool:
    """Whether a checkpoint holds a pooler; one that it lacks would be saved at random values."""
    resolved = resolve_model(name)
    for file in (SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME):
        path = cached_file(
            resolved, file, local_files_only=True,
            _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
        )  # fmt: skip
        if path is None:
            continue
        if file == SAFE_WEIGHTS_INDEX_NAME:
            names = json.loads(Path(path).read_text(encoding="utf-8"))["weight_map"]
        else:
            with safe_open(path, framework="pt") as tensors:
                names = list(tensors.keys())
        return any("pooler." in name for name in names)
    return False


HIDDEN, SENTENCE, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
ANSWER_ENDS = ("start_logits", "end_logits")
_TOKEN_HEADS = ("masked_lm", "token_classification")


def output_names(head: ExportHead | None, sentence: SentencePooling | None) -> tuple[str, ...]:
    """Return the names of the outputs, in order.

    Without a head `last_hidden_state` `[B, L, H]`, and `sentence_embedding` `[B, H]` where sentence vectors are made;
    else `logits`, of every token or of the text, or `start_logits` and `end_logits` `[B, L]`. They are the names that
    `transformers` and Optimum use.
    """
    if head is None:
        return (HIDDEN,) if sentence is None else (HIDDEN, SENTENCE)
    return ANSWER_ENDS if head == "question_answering" else (LOGITS,)


def is_per_token(name: str, head: ExportHead | None) -> bool:
    """Whether an output's first two axes are those of the tokens `[B, L]`."""
    return name in (HIDDEN, *ANSWER_ENDS) or (name == LOGITS and head in _TOKEN_HEADS)


def input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the inputs that the tokenizer makes and the model reads: `input_ids`, `attention_mask`, then the rest."""
    read = inspect.signature(type(model).forward).parameters
    rest = [name for name in tokenizer.model_input_names if name in read]
    return tuple(dict.fromkeys(["input_ids", "attention_mask", *rest]))


class OutputModule(nn.Module):
    """A model that takes its inputs by place and returns its named outputs as a tuple, in float32.

    Args:
        model: The model.
        inputs: Names of its inputs, in order.
        head: Its head.
        sentence: How it makes sentence vectors, if it does.
    """

    def __init__(
        self, model: PreTrainedModel, inputs: Sequence[str], head: ExportHead | None, sentence: SentencePooling | None
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)
        self.outputs = output_names(head, sentence)
        self.sentence = sentence

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the model.

        Args:
            *inputs: `[B, L]` each, in the order of `self.inputs`.

        Returns:
            One tensor for each of `self.outputs`.
        """
        named = dict(zip(self.inputs, inputs, strict=True))
        found = self.model(**named, return_dict=True)
        made = {name: found[name].float() for name in self.outputs if name != SENTENCE}
        if self.sentence is not None:
            vectors = pool(made[HIDDEN], named["attention_mask"].bool(), self.sentence.pooling)
            made[SENTENCE] = F.normalize(vectors, dim=-1) if self.sentence.normalize else vectors
        return tuple(made[name] for name in self.outputs)
