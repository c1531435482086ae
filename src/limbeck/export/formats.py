"""The formats: what each writes into a folder, and how what was written is run again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from limbeck.core.files import give_ordinary_mode
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.export.batches import Batch, Runner
from limbeck.export.onnx import ONNX_DTYPES, open_session, session_runner
from limbeck.export.source import SENTENCE, OutputModule, Source, input_names, load_weights
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config, quiet
from limbeck.models.locating import SentencePooling

# The few files that make a transformers folder a sentence-transformers one.


_MODULES = "sentence_transformers.models"


def write_sentence_transformers_files(
    folder: Path, *, width: int, pooling: str, normalize: bool, max_length: int | None
) -> None:
    """Say in a model's folder how sentence vectors are made, so that `SentenceTransformer(folder)` loads it.

    Args:
        folder: Holds the model and its tokenizer.
        width: Width of the vectors.
        pooling: `"mean"` or `"cls"`.
        normalize: Scale vectors to length one.
        max_length: Longest input in tokens, or None for the model's own.
    """
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_MODULES}.Pooling"},
    ]
    if normalize:
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{_MODULES}.Normalize"})
        (folder / "2_Normalize").mkdir(exist_ok=True)
    _write(folder / "modules.json", modules)
    transformer: dict[str, Any] = {"do_lower_case": False}
    if max_length is not None:
        transformer["max_seq_length"] = max_length
    _write(folder / "sentence_bert_config.json", transformer)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


ONNX_FOLDER = "onnx"
FLOAT_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        name: As the user writes it.
        dtypes: Of the weights; the first is the default.
        packages: What has to be installed, as it is imported.
        onnx_file: Where the graph is in the folder, under the name that Optimum, sentence-transformers and
            transformers.js look for; None for PyTorch's formats.
    """

    name: str
    dtypes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    onnx_file: str | None = None

    def path(self, folder: Path) -> Path:
        """Return the path of the graph in an export's folder."""
        assert self.onnx_file is not None
        return folder / self.onnx_file


_RUNTIME = ("onnx", "onnxruntime")
FORMATS = {
    found.name: found
    for found in (
        Format("onnx", ONNX_DTYPES, _RUNTIME, f"{ONNX_FOLDER}/model.onnx"),
        Format("onnx-int8", ("int8",), _RUNTIME, f"{ONNX_FOLDER}/model_quantized.onnx"),
        Format("sentence-transformers", FLOAT_DTYPES, ("sentence_transformers",)),
        Format("safetensors", FLOAT_DTYPES),
    )
}


def choose_format(name: str) -> Format:
    """Return a format by its name.

    Raises:
        RecipeError: naming the nearest.
    """
    if name not in FORMATS:
        raise RecipeError(f"Unknown format '{name}'.{suggestion(name, FORMATS)}")
    return FORMATS[name]


def choose_dtype(chosen: Format, name: str | None) -> str:
    """Return the weights' dtype, the format's own where none is asked for.

    Raises:
        RecipeError: for one that the format does not have, with the reason where it is not obvious.
    """
    if name is None:
        return chosen.dtypes[0]
    if name in chosen.dtypes:
        return name
    if chosen.name == "onnx" and name == "bfloat16":
        raise RecipeError("ONNX Runtime has no bfloat16 on a CPU, so it could not be checked; use --dtype float16.")
    raise RecipeError(f"--dtype '{name}' does not go with --format {chosen.name}.{suggestion(name, chosen.dtypes)}")


def sentence_settings(chosen: Format, source: Source) -> SentencePooling | None:
    """Return how the export makes sentence vectors: as the source; for sentence-transformers the mean where that is
    silent, as its own loader takes it.

    Raises:
        ModelError: for sentence-transformers and a model with the head of a task.
    """
    if chosen.name != "sentence-transformers" or source.sentence is not None:
        return source.sentence
    if source.head not in (None, "masked_lm"):
        words = source.head.replace("_", " ")
        raise ModelError(
            f"'{source.name}' has a {words} head and makes no sentence vectors; export it with --format onnx or "
            "safetensors."
        )
    return SentencePooling("mean", normalize=False, max_length=None)


def source_runner(source: Source, sentence: SentencePooling | None) -> Runner:
    """Return what runs the source itself."""
    return module_runner(output_module(source, sentence))


def output_module(source: Source, sentence: SentencePooling | None) -> OutputModule:
    """Return the source with its named outputs; with sentence vectors its Transformer without a head."""
    head = source.head if sentence is None else None
    model = source.model if head is not None or source.head is None else source.model.base_model
    return OutputModule(model, input_names(source.model, source.tokenizer), head, sentence).eval()


def module_runner(module: OutputModule) -> Runner:
    """Return what runs a module on batches."""

    def run(batch: Batch) -> dict[str, Tensor]:
        with torch.inference_mode():
            found = module(*(batch.inputs[name] for name in module.inputs))
        return dict(zip(module.outputs, found, strict=True))

    return run


def write_weights(source: Source, folder: Path, dtype: str, sentence: SentencePooling | None) -> None:
    """Write configuration, safetensors in a dtype and tokenizer, with what makes sentence vectors if anything does."""
    head = source.head if sentence is None else None
    model = load_weights(source.name, head, dtype=dtype, pooler=True)
    with quiet():
        model.save_pretrained(str(folder))
    give_ordinary_mode(folder.glob("*.safetensors"))
    write_small_files(source, folder, sentence, config=False)


def write_small_files(source: Source, folder: Path, sentence: SentencePooling | None, *, config: bool = True) -> None:
    """Write the tokenizer, the files of sentence-transformers, and the configuration unless weights brought it."""
    if config:
        with quiet():
            source.model.config.save_pretrained(str(folder))
    source.tokenizer.save_pretrained(str(folder))
    if sentence is not None:
        write_sentence_transformers_files(
            folder,
            width=shape_of(source.model.config).hidden,
            pooling=sentence.pooling,
            normalize=sentence.normalize,
            max_length=source.longest,
        )


def folder_runner(chosen: Format, folder: Path, source: Source, sentence: SentencePooling | None) -> Runner:
    """Return what runs an export as its users would: ONNX Runtime, sentence-transformers, or transformers.

    Args:
        chosen: The format.
        folder: Of the export.
        source: What was exported.
        sentence: How the export makes sentence vectors.
    """
    if chosen.onnx_file is not None:
        return session_runner(open_session(chosen.path(folder)))
    if chosen.name == "sentence-transformers":
        return _sentence_transformers_runner(folder)
    head = source.head if sentence is None else None
    # As AutoModel does by default; the own loader takes float32 where nothing is asked for.
    model = load_weights(str(folder), head, dtype=str(load_config(folder).dtype).removeprefix("torch."))
    return module_runner(OutputModule(model.eval(), input_names(model, source.tokenizer), head, sentence))


def _sentence_transformers_runner(folder: Path) -> Runner:
    from sentence_transformers import SentenceTransformer

    with quiet():
        model: Any = SentenceTransformer(str(folder), device="cpu")

    def run(batch: Batch) -> dict[str, Tensor]:
        found = model.encode(list(batch.texts), convert_to_tensor=True, show_progress_bar=False)
        return {SENTENCE: found.float()}

    return run
