"""What `together` runs in every process."""

import os
import signal

import torch
from transformers import TrainerCallback

import limbeck.api
from limbeck.training import stage as stage_module
from limbeck.training.trainer import DistillationTrainer


def distil(*, index, console, recipe, resume=False):
    limbeck.api.distill(recipe, resume=resume, console=console)


class AtStep(TrainerCallback):
    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()


def with_action(step, action):
    """Have an action done at the end of a step of every stage."""

    class Acting(DistillationTrainer):
        def __init__(self, *positional, **named):
            super().__init__(*positional, **named)
            self.add_callback(AtStep(step, action))

    stage_module.DistillationTrainer = Acting


def distil_with_signal(*, index, console, recipe, step, receiver):
    """A signal comes to one process only, as when a launcher's signals come at different times."""
    if index == receiver:
        with_action(step, lambda: os.kill(os.getpid(), signal.SIGTERM))
    distil(index=index, console=console, recipe=recipe)


def distil_with_death(*, index, console, recipe, step, victim, resume=False):
    """One process dies without a word."""
    if index == victim:
        with_action(step, lambda: os.kill(os.getpid(), signal.SIGKILL))
    distil(index=index, console=console, recipe=recipe, resume=resume)


def distil_with_full_disk(*, index, console, recipe):
    """The main process cannot write its second checkpoint."""
    if index == 0:
        written = []
        original = torch.save

        def failing(*positional, **named):
            written.append(1)
            if len(written) > 3:
                raise OSError(28, "No space left on device")
            return original(*positional, **named)

        torch.save = failing
    distil(index=index, console=console, recipe=recipe)
