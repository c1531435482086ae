"""Measures what a generation of a layer-mapping search costs under one teacher, against the same runs one by one.

Twelve students 4x312 of a 12x768 teacher, random weights, learn by ELM's terms from twelve mappings drawn from its
search space, in bfloat16 with the teacher in bfloat16 on both sides, where the machine is fast in it. One side is a
`StudentCohort` as `limbeck search` trains it; the other are twelve separate trainings, each with its own teacher
forward, as `limbeck distill` would train them. Rounds alternate between the sides, in the opposite order every other
round; a ratio is of one round, and the median of the ratios counts. At the end the students of both sides are compared
number by number. Beside it stands what sharing alone would give: (T + 12 S) / (12 (T + S)), with the teacher's
forward T and the rest of a separate step S measured in the same rounds.

    python benchmarks/search_generation.py --output benchmarks/results/search_generation.json
    python benchmarks/search_generation.py --output benchmarks/results/search_generation.json --table
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import numpy as np
import torch

from limbeck.benchmark.rows import describe_machine
from limbeck.benchmark.step import Step
from limbeck.benchmark.step_batch import make_batch
from limbeck.benchmark.step_setup import StepRequest, StepSetup, set_up_step
from limbeck.core.devices import synchronise
from limbeck.corpus.batches.batch import read_batch
from limbeck.methods import METHODS
from limbeck.methods.pairing import Pairing
from limbeck.models.packing import send_batch
from limbeck.models.students import build_student
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.training_arguments import build_arguments
from limbeck.search import elm_space
from limbeck.search.genetic import draw_new
from limbeck.training.cohort import StudentCohort
from limbeck.training.cohort_trainer import CohortTrainer
from limbeck.training.freezing import freeze_unreached
from limbeck.training.step_start import RandomStreams
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.units import sum_units

STUDENTS = 12


def draw_setups(arguments: argparse.Namespace) -> list[StepSetup]:
    """One setup for each student: the same models and batch, another mapping."""
    request = StepRequest(
        method="elm",
        teacher=arguments.teacher,
        student=arguments.student,
        length=arguments.length,
        batch=arguments.batch,
        ragged=True,
        dtype="auto",
        device="auto",
    )
    base = set_up_step(request)
    student = base.student_shape
    teacher = base.teacher_shape
    space = elm_space(student.layers, teacher.layers)
    mappings = [space.decode(genome) for genome in draw_new(space, STUDENTS, np.random.default_rng(0))]
    method = METHODS["elm"]
    pairing = Pairing(student, facts_of_shape(teacher))
    return [replace(base, terms=method.compose(method.options(mapping=list(mapping)), pairing)) for mapping in mappings]


class Generation:
    """All students under one teacher."""

    def __init__(self, setups: list[StepSetup]) -> None:
        first = setups[0]
        teacher = build_student(first.teacher, seed=1).to(first.teacher_dtype)
        students = [build_student(setup.student, seed=0) for setup in setups]
        terms = [setup.terms for setup in setups]
        teaching = LiveTeaching(teacher, [term for terms_of_student in terms for term in terms_of_student])
        self.cohort = StudentCohort(students, teaching, terms)
        batch = make_batch(first)
        for index in range(len(setups)):
            freeze_unreached(self.cohort.member(index), {name: x[:2] for name, x in batch.items()})
        with TemporaryDirectory() as folder:
            arguments = build_arguments(first.training, output=folder, seed=0, evaluates=False)
            self.trainer = CohortTrainer(self.cohort, args=arguments)
        self.trainer.current_gradient_accumulation_steps = 1  # Set by the loop, which does not run here.
        self.batch = send_batch(batch, arguments.device)
        accelerator = self.trainer.accelerator
        self.model, self.optimizer = accelerator.prepare(self.cohort, self.trainer.create_optimizer())

    def run(self) -> None:
        """Take one step of every student."""
        self.trainer.training_step(self.model, dict(self.batch), sum_units([self.batch]).to(self.trainer.args.device))
        norm = self.trainer._clip_grad_norm(self.model)
        self.trainer._get_grad_norm(self.model, norm)
        self.optimizer.step()
        self.model.zero_grad()


def timed(function: Callable[[], Any], steps: int, device: torch.device) -> float:
    """Seconds of so many calls."""
    synchronise(device)
    started = time.perf_counter()
    for _ in range(steps):
        function()
    synchronise(device)
    return time.perf_counter() - started


@torch.no_grad()
def largest_difference(alone: list[Step], generation: Generation) -> float:
    """Over all numbers of all students."""
    return max(
        float((own - other).abs().max())
        for index, step in enumerate(alone)
        for own, other in zip(
            step.module.student.parameters(), generation.cohort.member(index).student.parameters(), strict=True
        )
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Take turns, and compare."""
    setups = draw_setups(arguments)
    torch.manual_seed(0)
    alone = [Step(setup) for setup in setups]
    generation = Generation(setups)
    device = alone[0].device
    starts: list[RandomStreams] = []
    for step in alone:  # Each draws its dropout from where the generation draws it.
        torch.manual_seed(1)
        step.run()
        starts.append(RandomStreams(device))
    torch.manual_seed(1)
    generation.run()
    together = RandomStreams(device)
    rounds = []
    for number in range(arguments.rounds):
        found: dict[str, float] = {}

        def run_alone(found: dict[str, float] = found) -> None:
            found["alone"] = found["teacher"] = 0.0
            for index, step in enumerate(alone):
                starts[index].restore()
                found["alone"] += timed(step.run, arguments.steps, device)
                starts[index] = RandomStreams(device)
                inputs = read_batch(step.batches[0])
                found["teacher"] += timed(lambda: step.module.teaching.read(inputs), arguments.steps, device)  # noqa: B023

        def run_together(found: dict[str, float] = found) -> None:
            nonlocal together
            together.restore()
            found["together"] = timed(generation.run, arguments.steps, device)
            together = RandomStreams(device)

        for side in (run_alone, run_together) if number % 2 == 0 else (run_together, run_alone):
            side()
        students = found["alone"] - found["teacher"]
        found["ratio"] = found["together"] / found["alone"]
        found["sharing_alone"] = (found["teacher"] / STUDENTS + students) / found["alone"]
        rounds.append({name: round(value, 4) for name, value in found.items()})
        print(rounds[-1], flush=True)
    return {
        "students": STUDENTS,
        "teacher": arguments.teacher,
        "student": arguments.student,
        "method": "elm",
        "teacher_dtype": str(setups[0].teacher_dtype).removeprefix("torch."),
        "student_dtype": str(alone[0].student_dtype).removeprefix("torch."),
        "batch": len(alone[0].lengths),
        "lengths": alone[0].lengths,
        "steps_a_round": arguments.steps,
        "rounds": rounds,
        "ratio": round(statistics.median(found["ratio"] for found in rounds), 3),
        "sharing_alone": round(statistics.median(found["sharing_alone"] for found in rounds), 3),
        "largest_difference": largest_difference(alone, generation),
        "machine": describe_machine(str(device)),
    }


def table(found: dict[str, Any]) -> str:
    """One row in Markdown."""
    ratios = [one["ratio"] for one in found["rounds"]]
    seconds = statistics.median(one["together"] for one in found["rounds"]) / found["steps_a_round"]
    return "\n".join(
        [
            "| generation | together / one by one | range | sharing alone gives | a step of all | largest difference |",
            "|---|---:|---:|---:|---:|---:|",
            f"| {found['students']} x {found['student']} from {found['teacher']}, {found['student_dtype']}, "
            f"{found['batch']} ragged samples | {found['ratio']:.2f} | {min(ratios):.2f} to {max(ratios):.2f} | "
            f"{found['sharing_alone']:.2f} | {seconds:.2f} s | {found['largest_difference']:g} |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="12x768")
    parser.add_argument("--student", default="4x312")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the table of what --output holds")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(measure(arguments), indent=2) + "\n", encoding="utf-8")
    print(table(json.loads(arguments.output.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
