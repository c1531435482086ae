"""A run: from a recipe to a student's folder, stage by stage, resumable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus, build_corpus
from limbeck.errors import OutputError
from limbeck.methods.registry import METHODS
from limbeck.models.building import build_student
from limbeck.models.checkpoint import load_checkpoint
from limbeck.models.families import family_of
from limbeck.models.initialise import initialise_student
from limbeck.models.loading import load_model
from limbeck.models.locating import check_weights, is_local, resolve_model
from limbeck.models.sentence_folder import SentencePooling
from limbeck.models.vocabulary import check_fits_model, load_tokenizer
from limbeck.recipe.plan import RunPlan, StageChoice
from limbeck.recipe.training_arguments import bf16_is_fast
from limbeck.training.corpus_progress import CorpusProgress
from limbeck.training.record import RunRecord
from limbeck.training.stage import StagePlan, load_finished, run_stage
from limbeck.training.student_folder import add_pooler, fill_from_teacher, never_trained, save_student

STUDENT = "student"
STAGES = "stages"


class Run:
    """Carries a plan out in its folder.

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
        self.corpora: list[Corpus] = []
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(
            plan.recipe.teacher.model, revision=plan.recipe.teacher.revision
        )
        check_fits_model(self.tokenizer, plan.teacher.vocabulary)
        located = resolve_model(plan.recipe.teacher.model)
        if is_local(located):
            check_weights(located)  # Before minutes go into the text.

    @property
    def student_folder(self) -> Path:
        """Where the student is saved."""
        return self.folder / STUDENT

    def train(self) -> PreTrainedModel:
        """Build the corpora, make the student, run the stages, and save the student.

        Returns:
            The trained student, in float32, without taps.
        """
        with self._timed("corpus"):
            self.corpora = self._build_corpora()
        self._check_same_text()
        with self._timed("models"):
            student, initialisation = self._make_student()
        self.record.set(
            "running",
            teacher={
                "name_or_path": self.plan.recipe.teacher.name or self.plan.recipe.teacher.model,
                "shape": str(self.plan.teacher),
            },
            student={
                "shape": str(self.plan.student),
                "parameters": sum(parameter.numel() for parameter in student.parameters()),
                "initialisation": initialisation,
            },
            corpus=self._describe_corpora(),
        )
        stages = []
        for index, choice in enumerate(self.plan.stages):
            with self._timed("training"):
                stages.append(self._run_stage(index, choice, student))
            self.record.set("running", stages=stages)
        student, untrained = self._finish_untrained(student, stages)
        save_student(
            self.student_folder,
            student,
            self.tokenizer,
            dropouts={
                name: getattr(self.plan.student_config, name)
                for name in family_of(self.plan.student_config).fields.dropouts
            },
            sentence=self.sentence_pooling(),
        )
        self.record.set("running", untrained=untrained)
        return student

    def load_teacher(self, dtype: str | None = None) -> PreTrainedModel:
        """Load the whole teacher; every stage takes its own, since it may cut it."""
        return load_model(self.plan.recipe.teacher.model, dtype=dtype, revision=self.plan.recipe.teacher.revision)

    def sentence_pooling(self) -> SentencePooling | None:
        """How the student makes sentence vectors: as the teacher, or as a stage trained it to; else not at all."""
        if self.plan.sentence is not None:
            return self.plan.sentence
        pooled = [c for c in self.plan.stages if any(k.kind == "pooled" for t in c.terms for k in t.student)]
        return SentencePooling(pooled[-1].pooling, normalize=True, max_length=None) if pooled else None

    def _build_corpora(self) -> list[Corpus]:
        with CorpusProgress(self.console) as progress:
            corpora = [build_corpus(choice.corpus, self.tokenizer, progress=progress) for choice in self.plan.stages]
        if corpora:
            first = corpora[0].manifest
            self.console.print(
                f"Corpus: {first['documents']:,} documents, {corpora[0].tokens:,} tokens to train on, "
                f"{first['held_out_documents']:,} documents held out",
                highlight=False,
                soft_wrap=True,
            )
            if not first["held_out_documents"]:
                self.console.print("  no document is held out, so there are no held-out figures", style="yellow")
            for line in corpora[0].report.lines():
                self.console.print(f"  {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
        return corpora

    def _check_same_text(self) -> None:
        """Refuse to go on with a run on other text than it began with."""
        before = (self.record.fields.get("corpus") or {}).get("views")
        now = (self._describe_corpora() or {}).get("views")
        if (self.folder / STAGES).is_dir() and before and before != now:
            raise OutputError(
                f"The text of the run in '{self.folder}' has changed since it was begun, so it cannot be resumed to "
                "the same result; put the text back, or start again with --overwrite."
            )

    def _describe_corpora(self) -> dict[str, Any] | None:
        if not self.corpora or self.plan.recipe.corpus is None:
            return None
        first = self.corpora[0].manifest
        return {
            "sources": self.plan.recipe.corpus.sources,
            "documents": first["documents"],
            "held_out_documents": first["held_out_documents"],
            "tokens": self.corpora[0].tokens,
            "report": first["report"],
            "views": [
                {
                    "stage": choice.spec.title,
                    "unit": choice.corpus.unit,
                    "length": choice.corpus.length,
                    "blocks": len(corpus.train),
                    "tokens": corpus.tokens,
                    "fingerprint": corpus.path.name,
                }
                for choice, corpus in zip(self.plan.stages, self.corpora, strict=True)
            ],
        }

    def _make_student(self) -> tuple[PreTrainedModel, dict[str, Any]]:
        recipe = self.plan.recipe
        config = type(self.plan.student_config)(**self.plan.student_config.to_dict())
        if recipe.student.dropout is not None:
            for name in family_of(config).fields.dropouts:
                setattr(config, name, recipe.student.dropout)
        student = build_student(config, seed=recipe.seed)
        start = recipe.student.initialise
        if start.checkpoint is not None:
            load_checkpoint(student, start.checkpoint)
            return student, {"checkpoint": start.checkpoint}
        report = initialise_student(
            student, self.load_teacher(), layers=start.layers, embeddings=start.embeddings, seed=recipe.seed
        )
        return student, {"summary": report.summary(), **report.as_record()}

    def _run_stage(self, index: int, choice: StageChoice, student: PreTrainedModel) -> dict[str, Any]:
        folder = self.folder / STAGES / f"{index + 1}-{choice.spec.title}"
        finished = load_finished(folder, student)
        if finished is None:
            plan = StagePlan(
                title=choice.spec.title,
                method=choice.spec.method["name"],
                terms=choice.terms,
                training=choice.spec.training,
                freeze_embeddings="embeddings" in choice.spec.freeze,
                replace_tokens=choice.spec.augment.replace_tokens,
                pooling=choice.pooling,
                seed=self.plan.recipe.seed + index,
                folder=folder,
            )
            teacher = self.load_teacher(self._teacher_dtype(choice))
            finished = run_stage(plan, student, teacher, self.tokenizer, self.corpora[index], self.console)
        citation = METHODS[finished["method"]].citation
        if citation is not None:
            finished["citation"] = {
                "title": citation.title,
                "authors": citation.authors,
                "url": citation.url,
                "bibtex": citation.bibtex,
            }
        return finished

    def _teacher_dtype(self, choice: StageChoice) -> str:
        asked = self.plan.recipe.teacher.dtype
        if asked != "auto":
            return asked
        training = choice.spec.training
        return "bfloat16" if training.get("bf16", bf16_is_fast() and not training.get("fp16")) else "float32"

    def _finish_untrained(
        self, student: PreTrainedModel, stages: list[dict[str, Any]]
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """Settle what parameters hold that no stage trained, and say so."""
        spec = self.plan.recipe.student
        names, frozen = never_trained(stages)
        filled: list[str] = []
        if names and spec.untrained == "teacher":
            terms = [term for choice in self.plan.stages for term in choice.terms]
            filled = fill_from_teacher(student, self.load_teacher(), names, terms)
        copies_pooler = spec.untrained == "teacher" or spec.initialise.layers != "random"
        teacher = None
        if copies_pooler and self.plan.student.hidden == self.plan.teacher.hidden:
            source = self.plan.recipe.teacher
            teacher = load_model(source.model, revision=source.revision, pooler=True)
        whole, pooler = add_pooler(student, teacher, self.plan.recipe.seed)
        return whole, {
            "policy": spec.untrained,
            "names": [*names, *pooler],
            "from_teacher": [*filled, *(pooler if teacher is not None else [])],
            "frozen": frozen,
        }

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.record.time(what, time.monotonic() - started)
