"""What `together` runs in every process."""

import json
import math
import os
import signal
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

import limbeck.api
from limbeck.core.ranks import broadcasting_tasks, connect, process_count, process_index
from limbeck.models.families import blocks as blocks_of
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.mapping import MappingRequest, search_mapping, task_measures
from limbeck.search.requests import ProxyRequest
from limbeck.training import stage as stage_module
from limbeck.training.cohort import StudentCohort
from limbeck.training.proxy import Proxy, follow_proxy
from limbeck.training.trainer import DistillationTrainer
from tests.support.training import AtStep


def distil(*, index, console, recipe, resume=False):
    limbeck.api.distill(recipe, resume=resume, console=console)


def note_whole_blocks(path):
    """Have noted, after a step, which blocks of the teacher are whole."""

    class Noting(DistillationTrainer):
        def __init__(self, *positional, **named):
            super().__init__(*positional, **named)
            self.add_callback(AtStep(3, self.note))

        def note(self):
            found = blocks_of(self.module.reader.teacher)
            # The last one is left in the middle of its forward pass.
            whole = [i for i, block in enumerate(found[:-1]) for p in block.parameters() if not isinstance(p, DTensor)]
            Path(path).write_text(json.dumps(whole))

    stage_module.DistillationTrainer = Noting


def distil_sharded(*, index, console, recipe, resume=False, stop=None, blocks=None):
    """With FSDP, which accelerate leaves off without GPUs; PyTorch itself shards on CPUs just as well."""
    original = AcceleratorState.__init__

    def initialise(self, *positional, fsdp_plugin=None, **named):
        original(self, *positional, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = initialise
    if blocks is not None and index == 0:
        note_whole_blocks(blocks)
    if stop is not None and index == 0:
        with_action(stop, lambda: os.kill(os.getpid(), signal.SIGTERM))
    distil(index=index, console=console, recipe=recipe, resume=resume)


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


def _settle(cut, poisoned):
    """What happens to students on the way: one is cut by the main process, one diverges in one process only."""
    if poisoned is not None:
        steps, forward = iter(range(1000)), StudentCohort.forward

        def poison(self, *inputs, **more):
            found = forward(self, *inputs, **more)
            broken = self.training and next(steps) == 3 and process_index() == process_count() - 1
            factor = math.nan if broken else 1.0
            return {name: (t * (factor if name.startswith(f"{poisoned}/") else 1), c) for name, (t, c) in found.items()}

        StudentCohort.forward = poison
    return None if cut is None else {2: lambda students: [index for index in students if index != cut]}


def train_candidates(*, index, console, recipes, output, cut=None, poisoned=None):
    """Train candidates side by side, and save what came of each."""
    connect()
    plans = [plan_run(load_recipe(recipe)) for recipe in recipes]
    cuts = _settle(cut, poisoned)
    if index > 0:
        follow_proxy(plans[0], share=1.0)
        return
    with broadcasting_tasks():
        trained = Proxy(plans[0], console=console).train(plans, cuts=cuts)
    for number, candidate in enumerate(trained):
        save_file(candidate.student.state_dict(), f"{output}-{number}.safetensors")
    outcomes = [[found.steps, found.diverged, found.held_out] for found in trained]
    Path(f"{output}.json").write_text(json.dumps(outcomes))


def search_layers(*, index, console, recipe, output, tasks=None):
    """Search for a layer mapping, and save the record."""
    request = MappingRequest(
        ProxyRequest(load_recipe(recipe), Path(output), "mapping", steps=3, share=1.0, storage=None),
        generations=2,
        genetic={"population": 3},
        teacher_layers=None,
        measures=task_measures(tasks, data="/nowhere" if tasks else None, preset="quick", seeds=1, settings=[]),
        batch=None,
        workers=1,
    )
    record = search_mapping(request, console)
    if record:
        (Path(output) / "found.json").write_text(json.dumps(record))
