"""Runs of a tapped model outside of its tap, as its owner's own code makes them between two steps of a training.

A `StreamTap` lets blocks stop where no stream needs more of them. A model that is called in any other way has to run
whole, or its output would be wrong without a sign.
"""

from typing import NamedTuple

import torch
from torch import nn

from limbeck.errors import ModelError
from limbeck.models.taps import StreamTap

_TAPPED = "_limbeck_tapped"
"""Attribute that marks the module through which the runs of a model with a tap go."""


def check_has_no_tap(root: nn.Module, title: str) -> None:
    """Refuse a model on which there is a tap already, since each lets the model stop where the other needs more.

    Args:
        root: The module through which all runs of the model go.
        title: The model's name in messages.

    Raises:
        ModelError: one line.
    """
    if _TAPPED in root.__dict__:
        raise ModelError(
            f"{title} is in use by another Distiller; call close() of that Distiller first, or give a copy of the "
            "model."
        )


class _Stop(NamedTuple):
    """Where a run may stop: the deepest layer that has to run, and the part of it that is needed; see `Recorder`."""

    last_layer: int
    stop_after: str


class OutsideRuns:
    """Lets a model with a tap on it run whole where it is called by other code.

    Runs are told apart where the model is entered, not in its blocks: with gradient checkpointing a block runs again in
    the backward pass, and then has to stop where it stopped before.

    Args:
        tap: The tap.
        root: The module through which all runs go.
    """

    def __init__(self, tap: StreamTap, root: nn.Module) -> None:
        self._root = root
        # A second tap on this model is refused by this mark.
        root.__dict__[_TAPPED] = True
        self._recorder = tap.recorder
        self._depth = tap.depth
        # Where the tap's own runs stop, set aside while other code runs the model; None at all other times.
        self._stop_of_tap: _Stop | None = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = [
            root.register_forward_pre_hook(self._enter),
            # This hook is also called after an error. Otherwise the next run of the tap would not stop where it can.
            root.register_forward_hook(self._leave, always_call=True),
        ]

    def _enter(self, module: nn.Module, arguments: object) -> None:
        """Let all blocks run, unless it is the tap that runs the model."""
        recorder = self._recorder
        is_run_of_tap = recorder.active
        # The model may call itself. Then its outer run has set the tap's stop aside already.
        has_set_stop_aside = self._stop_of_tap is not None
        if is_run_of_tap or has_set_stop_aside:
            return
        self._stop_of_tap = _Stop(recorder.last_layer, recorder.stop_after)
        recorder.last_layer = self._depth
        recorder.stop_after = "block"

    def _leave(self, module: nn.Module, arguments: object, output: object) -> None:
        """Let the tap's runs stop again where they need no more."""
        if self._stop_of_tap is None:
            return
        self._recorder.last_layer = self._stop_of_tap.last_layer
        self._recorder.stop_after = self._stop_of_tap.stop_after
        self._stop_of_tap = None

    def close(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._root.__dict__.pop(_TAPPED, None)
