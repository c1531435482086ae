"""A run: from a recipe to a student's folder, stage by stage, resumable."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.files import write_atomically
from limbeck.core.machine import keep_freed_memory
from limbeck.core.ranks import everywhere, from_main, is_main, main_first, process_count
from limbeck.corpus import Corpus, LabelledCorpus
from limbeck.errors import OutputError
from limbeck.methods.registry import METHODS
from limbeck.models.heads import Head
from limbeck.models.loading import load_model
from limbeck.models.locating import SentencePooling, check_weights, is_local, resolve_model
from limbeck.models.vocabulary import check_fits_model, load_tokenizer
from limbeck.recipe.plan import RunPlan, StageChoice, StudentChoice, TeacherChoice
from limbeck.training.checkpoint_files import sync_tree
from limbeck.training.heartbeat import Heartbeat, StagePlace, TrainingHeartbeat
from limbeck.training.layer_cosines import measure_layer_cosines
from limbeck.training.record import RunRecord
from limbeck.training.run_corpora import build_corpora, describe_corpora, label_kind
from limbeck.training.stage import StagePlan, run_stage, warn
from limbeck.training.stage_results import load_finished
from limbeck.training.stage_setup import teacher_dtype
from limbeck.training.student_folder import describe_layers, save_student
from limbeck.training.students import dropouts, finish_student, make_student
from limbeck.training.teacher_facts import teacher_facts

STUDENT = "student"
STAGES = "stages"


class Run:
    """Carries a plan out in its folder, in every process of it; one of them writes there.

    Args:
        plan: The checked recipe.
        folder: The run's folder, prepared.
        record: The run's record.
        console: Where progress goes.
    """

    def __init__(self, plan: RunPlan, folder: Path, record: RunRecord, console: Console) -> None:
        self.plan = plan
        self.folder = folder
        self.record = record
        self.console = console
        self.heartbeat = Heartbeat(folder, writes=is_main())
        self.corpora: list[Corpus | LabelledCorpus] = []
        self.tokenizer: PreTrainedTokenizerBase = everywhere(self._load_tokenizer)

    @property
    def student_folder(self) -> Path:
        """Where the student is saved."""
        return self.folder / STUDENT

    def train(self) -> PreTrainedModel:
        """Build the corpora, make the student, run the stages, and save the student.

        Returns:
            The trained student, in float32, without taps.
        """
        keep_freed_memory()
        plan = self.plan
        # Some releases of PyTorch with CUDA fail here where there is no driver.
        devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
        if process_count() == 1 and devices > 1:
            self._warn(f"  one of {devices} devices is used; torchrun takes them all (docs/scaling.md)")
        self.heartbeat.begin("corpus")
        with self._timed("corpus"):
            self.corpora = main_first(lambda: build_corpora(plan, self.tokenizer, self.console, self._beat_corpus))
        everywhere(self._check_same_text)
        self.heartbeat.begin("models")
        with self._timed("models"):
            student, initialisation = everywhere(
                lambda: self._make_student(plan.student_choice, plan.head, plan.own_stages)
            )
        self.record.set(
            "running",
            teacher={
                "name_or_path": plan.teacher_choice.title,
                "shape": str(plan.teacher),
                **teacher_facts(plan.recipe.teacher.model, plan.recipe.teacher.name),
            },
            student={
                "shape": str(plan.student),
                "head": plan.head,
                "parameters": sum(parameter.numel() for parameter in student.parameters()),
                "initialisation": initialisation,
            },
            corpus=describe_corpora(plan, self.corpora),
        )
        stages: list[dict[str, Any]] = []
        for index, choice in enumerate(plan.stages):
            with self._timed("training"):
                stages.append(self._run_stage(index, choice, student))
            self.record.set("running", stages=stages)
        trained = [record for record, choice in zip(stages, plan.stages, strict=True) if choice.student is None]
        return self._save(plan.student_choice, student, trained, plan.own_stages, self.student_folder)

    def load_teacher(self, choice: TeacherChoice | None = None, **options: Any) -> PreTrainedModel:
        """Load a whole teacher; every stage takes its own, since it may cut it.

        Args:
            choice: Which; the recipe's by default.
            **options: As in `load_model`.
        """
        choice = choice or self.plan.teacher_choice
        if choice.stage is not None:
            return load_model(self._stage_folder(choice.stage) / STUDENT, **options)
        return load_model(choice.spec.model, revision=choice.spec.revision, **options)

    def sentence_pooling(self) -> SentencePooling | None:
        """How the student makes sentence vectors: as the teacher, or as a stage trained it to; else not at all.

        A student of a task makes none, whatever its teacher was before it was fine-tuned.
        """
        if self.plan.head not in (None, "masked_lm"):
            return None
        if self.plan.sentence is not None:
            return self.plan.sentence
        pooled = [c for c in self.plan.own_stages if any(k.kind == "pooled" for t in c.terms for k in t.student)]
        return SentencePooling(pooled[-1].pooling, normalize=True, max_length=None) if pooled else None

    def _load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, and see that teacher and tokenizer are whole, before minutes go into the text."""
        spec = self.plan.recipe.teacher
        tokenizer = load_tokenizer(spec.model, revision=spec.revision)
        check_fits_model(tokenizer, self.plan.teacher.vocabulary)
        located = resolve_model(spec.model)
        if is_local(located):
            check_weights(located)
        return tokenizer

    def _beat_corpus(self, step: str, done: int, total: int | None) -> None:
        self.heartbeat.beat(step_of_corpus=step, done=done, total=total)

    def _check_same_text(self) -> None:
        """Refuse to go on with a run on other text than it began with."""
        before = (self.record.fields.get("corpus") or {}).get("views")
        now = (describe_corpora(self.plan, self.corpora) or {}).get("views")
        if (self.folder / STAGES).is_dir() and before and before != now:
            raise OutputError(
                f"The text of the run in '{self.folder}' has changed since it was begun, so it cannot be resumed to "
                "the same result; put the text back, or start again with --overwrite."
            )

    def _make_student(
        self, choice: StudentChoice, head: Head | None, stages: list[StageChoice]
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """Build a student; its head starts from its teacher's where a stage reads that."""
        source = self._source(choice, stages)
        from_teacher = head if head in {stage.teacher_head for stage in stages if stage.teacher is source} else None
        return make_student(choice, head, from_teacher, partial(self.load_teacher, source), self.plan.recipe.seed)

    def _source(self, choice: StudentChoice, stages: list[StageChoice]) -> TeacherChoice:
        """The teacher that a student starts from: the recipe's, or that of its only stage."""
        return self.plan.teacher_choice if choice is self.plan.student_choice else stages[0].teacher

    def _run_stage(self, index: int, choice: StageChoice, student: PreTrainedModel) -> dict[str, Any]:
        """Run a stage, or take up a finished one; a stage with a student of its own leaves it in its folder."""
        folder = self._stage_folder(choice.spec.title)
        initialisation: dict[str, Any] | None = None
        if choice.student is not None:
            student, initialisation = everywhere(
                partial(self._make_student, choice.student, choice.student_head, [choice])
            )
        if choice.measures_layers:
            choice = self._measure_layers(choice, index, folder)
        finished = load_finished(folder, student, self._warn)
        if finished is None:
            plan = StagePlan(
                title=choice.spec.title,
                method=choice.spec.method["name"],
                terms=choice.terms,
                training=choice.spec.training,
                freeze_embeddings="embeddings" in choice.spec.freeze,
                replace_tokens=choice.spec.augment.replace_tokens,
                mask_tokens=choice.mask_tokens,
                labels=label_kind(choice),
                pooling=choice.pooling,
                seed=self.plan.recipe.seed + index,
                folder=folder,
                guard=choice.spec.guard,
                shards_teacher=choice.teacher.spec.sharded,
            )
            teacher = everywhere(
                partial(self.load_teacher, choice.teacher, dtype=teacher_dtype(choice), head=choice.teacher_head)
            )
            beat = TrainingHeartbeat(self.heartbeat, StagePlace(plan.title, index + 1, len(self.plan.stages)))
            finished = run_stage(plan, student, teacher, self.tokenizer, self.corpora[index], self.console, beat)
        finished["layers"] = describe_layers(choice.terms)
        if choice.student is not None:
            finished["student"] = {"shape": str(choice.student.shape), "initialisation": initialisation}
            if not from_main((folder / STUDENT).is_dir):
                self._save(choice.student, student, [finished], [choice], folder / STUDENT)
        if choice.spec.teacher is not None:
            finished["teacher"] = choice.teacher.title
            if choice.teacher.stage is None:
                finished["teacher_facts"] = teacher_facts(choice.teacher.spec.model, choice.teacher.spec.name)
        citation = METHODS[finished["method"]].citation
        if citation is not None:
            finished["citation"] = {
                "title": citation.title,
                "authors": citation.authors,
                "url": citation.url,
                "bibtex": citation.bibtex,
            }
        return finished

    def _measure_layers(self, choice: StageChoice, index: int, folder: Path) -> StageChoice:
        """Compose a stage for what its teacher's layers contribute; a resumed stage keeps what it measured."""
        found = choice.with_layer_cosines(from_main(lambda: self._layer_cosines(choice, index, folder)))
        layers = sorted({key.layer for term in found.terms for key in term.teacher if key.layer > 0})
        self.console.print(f"  teacher layers that contribute most: {layers}", style="dim", highlight=False)
        return found

    def _layer_cosines(self, choice: StageChoice, index: int, folder: Path) -> tuple[float, ...]:
        """What a stage's teacher's layers contribute, measured once."""
        kept = folder / "layer_cosines.json"
        if kept.is_file():
            return tuple(json.loads(kept.read_text(encoding="utf-8")))
        teacher = self.load_teacher(choice.teacher, dtype=teacher_dtype(choice))
        cosines = measure_layer_cosines(teacher, self.corpora[index], self.tokenizer)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, json.dumps(cosines))
        return tuple(cosines)

    def _save(
        self,
        choice: StudentChoice,
        student: PreTrainedModel,
        records: list[dict[str, Any]],
        stages: list[StageChoice],
        folder: Path,
    ) -> PreTrainedModel:
        """Settle a student's untrained parameters and write its folder."""
        source = self._source(choice, stages)
        whole, untrained = finish_student(
            choice,
            student,
            records,
            [term for stage in stages for term in stage.terms],
            partial(self.load_teacher, source),
            teacher_width=source.shape.hidden,
            seed=self.plan.recipe.seed,
        )
        sentence = self.sentence_pooling() if choice is self.plan.student_choice else None

        def write() -> None:
            save_student(folder, whole, self.tokenizer, dropouts=dropouts(choice), sentence=sentence)
            sync_tree(folder)

        from_main(write)
        if choice is self.plan.student_choice:
            self.record.set("running", untrained=untrained)
        return whole

    def _stage_folder(self, title: str) -> Path:
        index = next(i for i, choice in enumerate(self.plan.stages) if choice.spec.title == title)
        return self.folder / STAGES / f"{index + 1}-{title}"

    def _warn(self, line: str) -> None:
        warn(self.console, line)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.record.time(what, time.monotonic() - started)
