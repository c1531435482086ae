"""The formats of an export: each writes a folder, runs it again, and says how far it may be from its source."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor

from limbeck.core import exports, permissions, progress, registry
from limbeck.errors import ModelError
from limbeck.export import batches, onnx
from limbeck.export.batches import Batch, Runner
from limbeck.export.source import SENTENCE, OutputModule
from limbeck.models import families, router, vector_check
from limbeck.models.loaded import LoadedModel, open_model
from limbeck.models.loading import load_config, load_model
from limbeck.models.quiet import quiet
from limbeck.models.sample_texts import Text, built_in_texts
from limbeck.models.sentence_files import router_prompts, write_router_files, write_sentence_transformers_files
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import save_tokenizer

# Shares of the progress of writing int8.
_TRACED, _QUANTISED = 0.2, 0.4


@dataclass(frozen=True)
class Writing:
    """The options of writing an export.

    Attributes:
        dtype: Of the weights.
        opset: Operator set of ONNX.
        texts: Sample text, on which the graph that int8 is made of is compared with its source.
        seconds: For the latencies of int8.
        report: Receives progress.
    """

    dtype: str
    opset: int
    texts: Sequence[Text]
    seconds: float
    report: progress.Report


class Format(ABC):
    """A format: how a source is written into a folder, and how that folder is run again.

    Attributes:
        name: As the user writes it.
        packages: Packages it needs, as they are imported.
        onnx_file: Where the graph is in the folder, under the name that Optimum, sentence-transformers and
            transformers.js look for; empty for PyTorch's formats.
        reads_text: Whether it is run on text, which its library then pads on the right.
        tokenizer_folder: Where the tokenizer is in the folder.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    onnx_file: ClassVar[str] = ""
    reads_text: ClassVar[bool] = False
    tokenizer_folder: ClassVar[str] = ""

    def open(self, name: str) -> LoadedModel:
        """Load the model to export, with the head and the sentence vectors that the export has; see `open_model`.

        Raises:
            ModelError: for a source that the format does not take.
        """
        return open_model(name)

    @abstractmethod
    def write(self, source: LoadedModel, folder: Path, writing: Writing) -> dict[str, Any]:
        """Write the files, and return further facts for the record."""

    def reference(self, source: LoadedModel) -> Runner:
        """Return a function that runs the source on batches, with the outputs that `runner` has."""
        return module_runner(OutputModule(source))

    @abstractmethod
    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Return a function that runs the export in a folder on batches, as its users would."""

    def check(self, found: exports.Differences, dtype: str, *, strict: bool) -> None:
        """Refuse an export that is too far from its source.

        Args:
            found: The differences.
            dtype: Of the exported weights.
            strict: Whether to refuse a low quality of int8, which is only measured otherwise.

        Raises:
            ExportMismatchError: with the difference and the bound.
        """
        batches.check_differences(found, dtype)


class Safetensors(Format):
    """A folder of transformers: configuration, safetensors in a dtype, and tokenizer."""

    name = "safetensors"

    def write(self, source: LoadedModel, folder: Path, writing: Writing) -> dict[str, Any]:
        """Write the folder, with the files that make sentence vectors if the source makes any."""
        model = load_model(source.name, revision=source.revision, dtype=writing.dtype, head=source.head, pooler=True)
        with quiet():
            model.save_pretrained(str(folder))
        permissions.give_ordinary_mode(folder.glob("*.safetensors"))
        write_small_files(source, folder, config=False)
        return {}

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the model with transformers."""
        # AutoModel's default; `load_model` takes float32 where nothing is asked for.
        model = load_model(folder, dtype=load_config(folder).dtype, head=source.head)
        return module_runner(OutputModule(replace(source, model=model)))


class SentenceTransformers(Safetensors):
    """A folder of sentence-transformers."""

    name = "sentence-transformers"
    packages = ("sentence_transformers",)
    reads_text = True

    def open(self, name: str) -> LoadedModel:
        """Load a model without a head, with the mean as its pooling where its files are silent.

        Raises:
            ModelError: for a model with the head of a task.
        """
        source = super().open(name)
        if source.sentence is not None:
            return source
        if source.head not in (None, "masked_lm"):
            words = source.head.replace("_", " ")
            raise ModelError(
                f"'{source.name}' has a {words} head and does not make sentence vectors; export it with --format "
                "onnx or safetensors."
            )
        pooling = SentencePooling("mean", normalize=False, max_length=None)
        return replace(source, model=source.model.base_model, head=None, sentence=pooling)

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the model with sentence-transformers, which reads text."""
        from sentence_transformers import SentenceTransformer

        with quiet():
            model: Any = SentenceTransformer(str(folder), device="cpu")

        def run(batch: Batch) -> dict[str, Tensor]:
            found = model.encode(list(batch.texts), prompt="", convert_to_tensor=True, show_progress_bar=False)
            return {SENTENCE: found.float()}

        return run


class Router(Safetensors):
    """A folder of sentence-transformers whose queries go to a student, and whose documents to its teacher.

    Args:
        documents: The model for documents; None takes the teacher that the record of the student's run names.
    """

    name = "router"
    packages = ("sentence_transformers",)
    reads_text = True
    tokenizer_folder = "query"

    def __init__(self, documents: str | None = None) -> None:
        self.documents = documents

    def open(self, name: str) -> LoadedModel:
        """Load the student and the model for documents; see `limbeck.models.router.open_pair`.

        Raises:
            ModelError: for models whose vectors cannot be compared.
        """
        return router.open_pair(name, self.documents)

    def write(self, source: LoadedModel, folder: Path, writing: Writing) -> dict[str, Any]:
        """Write both models, each a whole folder of sentence-transformers, and the files that join them."""
        pair = router.pair_of(source)
        texts = [text for text in writing.texts if isinstance(text, str)]
        found = router.share_found(pair, texts)
        for role, model in pair.by_role.items():
            (folder / role).mkdir()
            super().write(model, folder / role, writing)
        sentences = {role: model.sentence for role, model in pair.by_role.items() if model.sentence is not None}
        write_router_files(folder, sentences)
        return {"prompts": router_prompts(sentences), "found": found}

    def reference(self, source: LoadedModel) -> Runner:
        """Run both models by limbeck, with the prompt of each role."""
        pair = router.pair_of(source)
        return _role_runner({role: partial(vector_check.own_vectors, model) for role, model in pair.by_role.items()})

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run both models by `encode_query` and `encode_document` of sentence-transformers."""
        vectors = partial(vector_check.library_vectors, vector_check.load_in_library(folder))
        return _role_runner(dict.fromkeys(("query", "document"), vectors))

    def check(self, found: exports.Differences, dtype: str, *, strict: bool) -> None:
        """Refuse vectors that are not those of the two models."""
        batches.check_differences(found, dtype, bound=router.LARGEST_DIFFERENCE)


class Onnx(Format):
    """An ONNX graph beside configuration and tokenizer."""

    name = "onnx"
    packages = ("onnx", "onnxruntime")
    onnx_file = "onnx/model.onnx"

    def write(self, source: LoadedModel, folder: Path, writing: Writing) -> dict[str, Any]:
        """Write the folder.

        Raises:
            ModelError: for vectors without the tokens of their prompts, which the graph cannot tell from the text's.
        """
        if source.sentence is not None and source.sentence.said_prompts and not source.sentence.include_prompt:
            raise ModelError(
                f"'{source.name}' leaves the tokens of its prompts out of its vectors (include_prompt), which a graph "
                "cannot; export it with --format sentence-transformers."
            )
        path, module = folder / self.onnx_file, OutputModule(source)
        write_small_files(source, folder)
        path.parent.mkdir()
        # Not of the given texts, which may be one: a trace takes an axis of one entry for constant.
        own = batches.make_batches(source.tokenizer, built_in_texts(pairs=False), module.inputs, source.longest)
        example = max(own, key=lambda batch: len(batch.texts))
        more = self.write_graph(source, module, example, path, writing)
        facts = {"opset": writing.opset, "inputs": list(module.inputs), "outputs": list(module.outputs)}
        return facts | {"megabytes": onnx.onnx_bytes(path) / 1e6} | more

    def write_graph(
        self, source: LoadedModel, module: OutputModule, example: Batch, path: Path, writing: Writing
    ) -> dict[str, Any]:
        """Write the graph, and return further facts."""
        onnx.write_onnx(module, example, path, opset=writing.opset, dtype=writing.dtype)
        return {}

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the graph in ONNX Runtime."""
        return onnx.session_runner(onnx.open_session(folder / self.onnx_file))


class OnnxInt8(Onnx):
    """An ONNX graph with weights of 8 bits, whose gain is measured."""

    name = "onnx-int8"
    onnx_file = "onnx/model_quantized.onnx"

    def write_graph(
        self, source: LoadedModel, module: OutputModule, example: Batch, path: Path, writing: Writing
    ) -> dict[str, Any]:
        """Write the graph in float32, check it, and quantise it."""
        sample = batches.make_batches(source.tokenizer, writing.texts, module.inputs, source.longest)
        with TemporaryDirectory(dir=path.parent.parent) as scratch:
            full = Path(scratch) / "model.onnx"
            onnx.write_onnx(module, example, full, opset=writing.opset)
            # A wrong graph must not pass as the error of 8 bits.
            graph = onnx.session_runner(onnx.open_session(full))
            exact = batches.measure_differences(module_runner(module), graph, sample, source.head)
            batches.check_differences(exact, "float32")
            reduced = onnx.needs_reduced_range()
            writing.report(_TRACED, "Quantising")
            onnx.quantise(full, path, reduce_range=reduced)
            measured = onnx.measure_int8(
                source, full, path, seconds=writing.seconds, report=progress.part_of(writing.report, _QUANTISED, 1.0)
            )
        return {"weight_bits": 7 if reduced else 8, "int8": measured}

    def check(self, found: exports.Differences, dtype: str, *, strict: bool) -> None:
        """Refuse too little quality, if strict."""
        if strict:
            batches.check_int8_quality(found)


FORMATS: registry.Registry[Format] = registry.Registry(
    "format",
    source=lambda: (
        (each.name, each) for each in (Onnx(), OnnxInt8(), SentenceTransformers(), Router(), Safetensors())
    ),
)
"""Name to format."""


def module_runner(module: OutputModule) -> Runner:
    """Return a function that runs a module on batches."""

    def run(batch: Batch) -> dict[str, Tensor]:
        with torch.inference_mode():
            found = module(*(batch.inputs[name] for name in module.inputs))
        return dict(zip(module.outputs, found, strict=True))

    return run


def write_small_files(source: LoadedModel, folder: Path, *, config: bool = True) -> None:
    """Write the tokenizer, the files of sentence-transformers, and the configuration unless weights brought it."""
    if config:
        with quiet():
            source.model.config.save_pretrained(str(folder))
    save_tokenizer(folder, source.tokenizer, source.model, source.longest)
    if (sentence := source.sentence) is not None:
        width = families.shape_of(source.model.config).hidden
        write_sentence_transformers_files(
            folder, width=width, pooling=sentence.pooling, normalize=sentence.normalize, max_length=source.longest,
            like=sentence,
        )  # fmt: skip


def _role_runner(vectors: Mapping[str, Callable[[Sequence[tuple[str, vector_check.Role]]], Tensor]]) -> Runner:
    """Return a function that runs both models on the texts of batches, with an output for each role.

    Args:
        vectors: Role to a function that makes vectors of texts with roles.
    """

    def run(batch: Batch) -> dict[str, Tensor]:
        return {role: make([(str(text), role) for text in batch.texts]) for role, make in vectors.items()}

    return run
