"""Running an ONNX file in ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from limbeck.errors import ModelError
from limbeck.export.batches import Batch
from limbeck.export.differences import Runner
from limbeck.models.loading import one_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def open_session(path: Path) -> InferenceSession:
    """Open an ONNX file with as many threads as PyTorch has, so that times can be compared.

    Raises:
        ModelError: if ONNX Runtime cannot run it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its exceptions have no common base.
        raise ModelError(f"ONNX Runtime cannot run '{path.name}': {one_line(error)}") from error


def session_runner(session: InferenceSession) -> Runner:
    """Return what runs a session on batches."""
    inputs = [found.name for found in session.get_inputs()]
    outputs = [found.name for found in session.get_outputs()]

    def run(batch: Batch) -> dict[str, Tensor]:
        found = session.run(outputs, {name: batch.inputs[name].numpy() for name in inputs})
        return {name: torch.from_numpy(value) for name, value in zip(outputs, found, strict=True)}

    return run


class SessionModule(nn.Module):
    """A session as a module, so that it is timed as any other model.

    Args:
        session: The session.
        config: Of its model.
    """

    def __init__(self, session: InferenceSession, config: PreTrainedConfig) -> None:
        super().__init__()
        self._session = session
        self._others = [found.name for found in session.get_inputs()]
        # A graph has no blocks to time by themselves, but a list of them is asked for.
        self.blocks = nn.ModuleList([nn.Identity()])
        self.config = SimpleNamespace(vocab_size=config.vocab_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Any]:
        """Run the session; its other inputs, such as segment ids, are zero.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        feed = {name: given.get(name, torch.zeros_like(input_ids)).numpy() for name in self._others}
        return self._session.run(None, feed)
