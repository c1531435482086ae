"""The tap for families whose attention does not go through `transformers.AttentionInterface`: hooks on its maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.models.family_table import Projections
from limbeck.models.recorder import Recorder, StopForward


def attach(block: nn.Module, recorder: Recorder, projections: Projections) -> list[torch.utils.hooks.RemovableHandle]:
    """Record the outputs of a block's query, key and value maps, and the input of its output map.

    Args:
        block: One block.
        recorder: Keeps what it wants.
        projections: Where the maps are; they run in the order query, key, value.

    Returns:
        The handles that take the hooks off.
    """
    handles = [
        block.get_submodule(path).register_forward_hook(partial(_record_output, recorder, kind))
        for kind, path in (
            ("query", projections.query),
            ("key", projections.key),
            ("value", projections.value),
        )
    ]
    output = block.get_submodule(projections.output)
    handles.append(output.register_forward_pre_hook(partial(_record_context, recorder)))
    return handles


def _record_output(recorder: Recorder, kind: str, module: nn.Module, args: Any, output: Tensor) -> None:
    recorder.record(kind, recorder.layer, output)
    if kind == "value" and recorder.stops_at(recorder.layer, "projections"):
        raise StopForward


def _record_context(recorder: Recorder, module: nn.Module, args: tuple[Tensor, ...]) -> None:
    recorder.record("context", recorder.layer, args[0])
    if recorder.stops_at(recorder.layer, "context"):
        raise StopForward
