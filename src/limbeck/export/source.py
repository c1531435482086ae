"""The source of an export: a run's student, a model's folder, an installed package or a Hub name, and its outputs."""

import inspect
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.kinds import kind_of
from limbeck.core.pickles import convert_pickles
from limbeck.errors import ModelError
from limbeck.export.batches import Batch, Runner
from limbeck.models.folder_files import MODULES, read_json, read_modules
from limbeck.models.heads import Head, has_head, model_class
from limbeck.models.loaded import LoadedModel
from limbeck.models.loading import load_config, load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_root
from limbeck.models.sentences import LIBRARY_CONFIG, SentencePooling
from limbeck.models.weight_files import SMALL_FILES, WEIGHTS, fetch_pickles


@contextmanager
def safe_copy(name: str, beside: Path) -> Iterator[str]:
    """Yield a folder with the files of a model whose weights are pickles, with safetensors in their place.

    Args:
        name: A model's folder or a Hub name.
        beside: A folder to be; the copy lies beside it, and is gone at the end.

    Raises:
        ModelError: see `limbeck.core.pickles.convert_pickles` and `limbeck.models.weight_files.fetch_pickles`.
    """
    pickles = fetch_pickles(name)
    folder = pickles[0].parent
    # Of a Hub name the Transformer alone is copied.
    root = folder
    modules = []
    if is_local(resolve_model(name)):
        root = sentence_root(folder)
        modules = read_modules(root)
    place = next(parent for parent in beside.absolute().parents if parent.is_dir())
    with TemporaryDirectory(prefix=".limbeck-safe-copy-", dir=place) as scratch:
        small_files = (file for pattern in SMALL_FILES for file in folder.glob(pattern))
        small = {file for file in small_files if file.name != MODULES and not file.name.endswith(".index.json")}
        small |= {file for file in (root / MODULES, root / LIBRARY_CONFIG) if modules and file.is_file()}
        for module in modules:
            # The Transformer's files are those of the folder itself.
            if module.class_name == "Transformer":
                continue
            inside = module.folder(root)
            small |= {file for file in (inside / "config.json", inside / WEIGHTS) if file.is_file()}
        for file in small:
            copy = Path(scratch, file.relative_to(root))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        inner = Path(scratch, folder.relative_to(root))
        convert_pickles(pickles, inner / WEIGHTS)
        _name_head(inner)
        try:
            yield scratch
        except ModelError as error:  # The copy is gone by the time that the line is read.
            raise type(error)(str(error).replace(scratch, str(root))) from None


def _name_head(folder: Path) -> None:
    """Say in a copy that it has a masked language model, where the class that saved it says so in an older way."""
    config = load_config(folder)
    older = any(name.endswith(("ForPreTraining", "WithLMHead")) for name in config.architectures or [])
    if not older or not has_head(config, "masked_lm"):
        return
    with suppress(ModelError):  # ELECTRA's pretraining has another head.
        load_model(folder, head="masked_lm")
        values = read_json(folder / "config.json", {}) | {"architectures": [model_class(config, "masked_lm").__name__]}
        (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


HIDDEN, SENTENCE, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
ANSWER_ENDS = ("start_logits", "end_logits")


def output_names(head: Head | None, sentence: SentencePooling | None) -> tuple[str, ...]:
    """Return the names of the outputs, in order.

    Without a head `last_hidden_state` `[B, L, H]`, and where sentence vectors are made `sentence_embedding`
    `[B, width]`; else `logits`, of every token or of the text, or `start_logits` and `end_logits` `[B, L]`. They are
    the names that `transformers` and Optimum use.
    """
    if head is None:
        return (HIDDEN,) if sentence is None else (HIDDEN, SENTENCE)
    return kind_of(head).outputs


def is_per_token(name: str, head: Head | None) -> bool:
    """Whether an output's first two axes are those of the tokens `[B, L]`."""
    return name in (HIDDEN, *ANSWER_ENDS) or (name == LOGITS and (head == "masked_lm" or kind_of(head).of_tokens))


def input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the inputs that the tokenizer makes and the model reads: `input_ids`, `attention_mask`, then the rest."""
    read = inspect.signature(type(model).forward).parameters
    rest = [name for name in tokenizer.model_input_names if name in read]
    return tuple(dict.fromkeys(["input_ids", "attention_mask", *rest]))


class OutputModule(nn.Module):
    """A source as a module that takes its inputs by place and returns its named outputs as a tuple, in float32.

    Args:
        source: The source.
    """

    def __init__(self, source: LoadedModel) -> None:
        super().__init__()
        self.model, self.head = source.model, source.head
        self.sentence = None if source.sentence is None else SentenceHead(source.sentence)
        self.inputs = input_names(source.model, source.tokenizer)
        self.outputs = output_names(source.head, source.sentence)
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the model.

        Args:
            *inputs: `[B, L]` each, in the order of `self.inputs`.

        Returns:
            One tensor for each of `self.outputs`.
        """
        named = dict(zip(self.inputs, inputs, strict=True))
        output = self.model(**named, return_dict=True)
        streams = {name: output[name].float() for name in self.outputs if name != SENTENCE}
        if self.sentence is not None:
            streams[SENTENCE] = self.sentence(streams[HIDDEN], named["attention_mask"].bool())
        return tuple(streams[name] for name in self.outputs)


def module_runner(module: OutputModule) -> Runner:
    """Return a function that runs a module on batches."""

    def run(batch: Batch) -> dict[str, Tensor]:
        with torch.inference_mode():
            outputs = module(*(batch.inputs[name] for name in module.inputs))
        return dict(zip(module.outputs, outputs, strict=True))

    return run
