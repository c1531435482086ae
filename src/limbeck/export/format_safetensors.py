"""The format `safetensors`: a folder that transformers loads, with weights in a chosen number format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from limbeck.export.format import Format, FormatOptions

if TYPE_CHECKING:
    from pathlib import Path

    from limbeck.export.batches import Runner
    from limbeck.models.loaded import LoadedModel


class Safetensors(Format):
    """A folder of transformers: configuration, safetensors in a dtype, and tokenizer."""

    name = "safetensors"
    title = "safetensors"

    def write(self, source: LoadedModel, folder: Path, options: FormatOptions) -> dict[str, Any]:
        """Write the folder, with the files that make sentence vectors if the source makes any.

        Returns:
            No facts for the record beside those that all formats have.
        """
        from limbeck.core.permissions import give_ordinary_mode
        from limbeck.export.small_files import write_small_files
        from limbeck.models.loading import load_model
        from limbeck.models.quiet import quiet

        # The source was loaded in float32 and without its pooler, so the model is loaded again as it is to be saved.
        model = load_model(source.name, revision=source.revision, dtype=options.dtype, head=source.head, pooler=True)
        # A configuration may lack the id of padding. The source then has that of its tokenizer.
        model.config.pad_token_id = source.model.config.pad_token_id
        with quiet():
            model.save_pretrained(str(folder))
        give_ordinary_mode(folder.glob("*.safetensors"))
        # `save_pretrained` has written the configuration.
        write_small_files(source, folder, config=False)
        return {}

    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Run the model with transformers."""
        from limbeck.export.outputs import OutputModule, module_runner
        from limbeck.models.loading import load_config, load_model

        # Transformers loads a model in the dtype of its configuration by default, and `load_model` in float32.
        model = load_model(folder, dtype=load_config(folder).dtype, head=source.head)
        return module_runner(OutputModule(replace(source, model=model)))
