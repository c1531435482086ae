"""The formats `onnx` and `onnx-int8`: a graph beside configuration and tokenizer.

A *graph* is the model's computation with its weights, as a file of ONNX. *Quantising* turns weights in float32 into 8
bits.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from limbeck.core.progress import part_of
from limbeck.errors import ModelError, RecipeError
from limbeck.export.format import Format, FormatOptions

if TYPE_CHECKING:
    from limbeck.core.exports import Differences
    from limbeck.export.batches import Batch, Runner
    from limbeck.export.outputs import OutputModule
    from limbeck.models.loaded import LoadedModel

DEFAULT_OPSET = 17
"""The operator set of ONNX; this one has LayerNormalization."""
OPSETS = range(14, 21)
"""Operator sets that can be asked for; PyTorch's tracing exporter writes none above the last."""

# The progress of writing int8, from 0 to 1, when the float32 graph is traced and when it is quantised.
_TRACED = 0.2
_QUANTISED = 0.4


class Onnx(Format):
    """An ONNX graph beside configuration and tokenizer.

    Attributes:
        file: The graph's place in the folder, where Optimum, sentence-transformers and transformers.js look for it.
    """

    name = "onnx"
    title = "ONNX"
    needs = ("onnx", "onnxruntime")
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16")
    refused_dtypes: ClassVar = {
        "bfloat16": "ONNX Runtime has no bfloat16 on a CPU, so it could not be checked; use --dtype float16."
    }
    options = ("opset",)
    tags: ClassVar[tuple[str, ...]] = ("onnx",)
    file: ClassVar[str] = "onnx/model.onnx"

    def check_options(self, options: FormatOptions) -> None:
        """Refuse an operator set that PyTorch cannot write."""
        if options.opset is not None and options.opset not in OPSETS:
            raise RecipeError(
                f"--opset {options.opset} is outside {OPSETS[0]} to {OPSETS[-1]}; give one of these, or leave "
                f"--opset out for {DEFAULT_OPSET}."
            )

    def write(self, source: LoadedModel, folder: Path, options: FormatOptions) -> dict[str, Any]:
        """Write the folder, and return the facts of the graph for the record.

        Raises:
            ModelError: for a model whose vectors leave out the tokens of its prompts. A graph gets only token ids, and
                cannot tell those of a prompt from those of a text.
        """
        from limbeck.export.batches import make_batches
        from limbeck.export.onnx import onnx_bytes
        from limbeck.export.outputs import OutputModule
        from limbeck.export.small_files import write_small_files
        from limbeck.models.sample_texts import built_in_texts

        sentence = source.sentence
        if sentence is not None and sentence.nonempty_prompts and not sentence.include_prompt:
            raise ModelError(
                f"'{source.name}' leaves the tokens of prompts out of its vectors (include_prompt: false), which "
                "an ONNX graph cannot do; export it with --format sentence-transformers."
            )
        write_small_files(source, folder)

        # The graph is traced on an example. An axis of length 1 would become a constant of the graph, so the example
        # has several texts: the largest batch of the built-in ones, since the user may have given a single text.
        module = OutputModule(source)
        batches = make_batches(source.tokenizer, built_in_texts(pairs=False), module.inputs, source.longest)
        example = max(batches, key=lambda batch: len(batch.texts))
        path = folder / self.file
        path.parent.mkdir()
        opset = DEFAULT_OPSET if options.opset is None else options.opset
        graph_facts = self.write_graph(source, module, example, path, options, opset)

        facts = {
            "megabytes": onnx_bytes(path) / 1e6,
            "file": self.file,
            "opset": opset,
            "inputs": list(module.inputs),
            "outputs": list(module.outputs),
        }
        facts |= graph_facts
        if sentence is not None:
            facts["prompts"] = sentence.nonempty_prompts
        return facts

    def write_graph(
        self,
        source: LoadedModel,
        module: OutputModule,
        example: Batch,
        path: Path,
        options: FormatOptions,
        opset: int,
    ) -> dict[str, Any]:
        """Write the graph, and return further facts about it for the record.

        Args:
            source: The exported model.
            module: The same model, as a module with named inputs and outputs.
            example: The batch on which the module is traced.
            path: The file of the graph.
            options: Options of the export.
            opset: Operator set of ONNX.
        """
        from limbeck.export.onnx import write_onnx

        write_onnx(module, example, path, opset=opset, dtype=options.dtype)
        return {}

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the graph in ONNX Runtime."""
        from limbeck.export.onnx import open_session, session_runner

        return session_runner(open_session(folder / self.file))

    def note(self, dtype: str) -> str | None:
        """Warn of float16 on a CPU."""
        if dtype != "float16":
            return None
        return "Meant for a GPU: on a CPU, ONNX Runtime computes many float16 operators in float32 with casts."


class OnnxInt8(Onnx):
    """An ONNX graph with weights of 8 bits, whose gain is measured."""

    name = "onnx-int8"
    title = "ONNX with int8 weights"
    dtypes = ("int8",)
    refused_dtypes: ClassVar = {}
    tags = ("onnx", "int8")
    file = "onnx/model_quantized.onnx"

    def write_graph(
        self,
        source: LoadedModel,
        module: OutputModule,
        example: Batch,
        path: Path,
        options: FormatOptions,
        opset: int,
    ) -> dict[str, Any]:
        """Write the graph in float32, check it, and quantise it; arguments as of `Onnx.write_graph`."""
        from limbeck.export import int8, onnx
        from limbeck.export.batches import make_batches
        from limbeck.export.differences import check_differences, measure_differences
        from limbeck.export.outputs import module_runner

        sample = make_batches(source.tokenizer, options.texts, module.inputs, source.longest)
        # The file lies in a subfolder of the export.
        export_folder = path.parent.parent
        with TemporaryDirectory(dir=export_folder) as scratch:
            full = Path(scratch) / "model.onnx"
            onnx.write_onnx(module, example, full, opset=opset)
            # The float32 graph is compared first, so that a wrong graph does not pass for the loss of quality by 8
            # bits.
            graph = onnx.session_runner(onnx.open_session(full))
            differences = measure_differences(module_runner(module), graph, sample, source.head)
            check_differences(differences, "float32")

            has_seven_bits = int8.needs_reduced_range()
            options.report(_TRACED, "Quantising")
            int8.quantise(full, path, reduce_range=has_seven_bits)
            measuring = part_of(options.report, _QUANTISED, 1.0)
            measured = int8.measure_int8(source, full, path, seconds=options.seconds, report=measuring)
        weight_bits = 7 if has_seven_bits else 8
        return {"weight_bits": weight_bits, "int8": measured}

    def check(self, differences: Differences, dtype: str, *, strict: bool) -> None:
        """Refuse a low quality if `strict`; otherwise it is only measured."""
        from limbeck.export.differences import check_int8_quality

        if strict:
            check_int8_quality(differences)

    def note(self, dtype: str) -> str | None:
        """Return None: the record has measurements of what int8 gains and loses."""
        return None
