"""Doing something in the middle of a run."""

from transformers import TrainerCallback


class AtStep(TrainerCallback):
    """Does something at the end of a step, once."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()
