"""Cross-field checks: a recipe against the configurations of its models, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedConfig

from limbeck.core.kinds import KINDS, kind_of
from limbeck.corpus import CorpusSettings, LabelledSettings
from limbeck.corpus.classes import read_weights
from limbeck.corpus.settings import SourceUse, StageTextSpec
from limbeck.corpus.sources import stored_size
from limbeck.errors import LimbeckError, RecipeError
from limbeck.evaluation.head_match import match_head
from limbeck.evaluation.task_files import check_scored
from limbeck.evaluation.task_rows import TaskRows
from limbeck.evaluation.tasks import find_task
from limbeck.methods.term import Term
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape
from limbeck.models.heads import Head, model_class
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.trial_run import check_runs
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.labelled_rows import check_rows, with_classes_of
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, choose_student, choose_teacher
from limbeck.recipe.models import TeacherSpec
from limbeck.recipe.row_copies import summarise_copies
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan, learn_labels, plan_stage, takes_class_weights, with_labels


@dataclass(frozen=True, repr=False)
class RunPlan:
    """A recipe that has been checked against its models' configurations.

    Args:
        recipe: The recipe.
        teacher_info: The recipe's teacher.
        student_plan: The recipe's student.
        sentence: Pooling that the teacher's folder names, or None.
        stages: The stages.
    """

    recipe: Recipe
    teacher_info: TeacherInfo
    student_plan: StudentPlan
    sentence: SentencePooling | None
    stages: list[StagePlan]

    def __repr__(self) -> str:
        """A plan in a few lines, as `limbeck validate` prints it."""
        return "\n".join(f"{name}: {text}" for name, text in summarise(self).items())

    @property
    def teacher(self) -> Shape:
        """Shape of the recipe's teacher."""
        return self.teacher_info.shape

    @property
    def student(self) -> Shape:
        """Shape of the recipe's student."""
        return self.student_plan.shape

    @property
    def student_config(self) -> PreTrainedConfig:
        """Configuration of the recipe's student, without dropout changes."""
        return self.student_plan.config

    @property
    def blueprint(self) -> StudentBlueprint:
        """The student's shape in full."""
        return self.student_plan.blueprint

    @property
    def own_stages(self) -> list[StagePlan]:
        """The stages that train the recipe's student."""
        return [stage for stage in self.stages if stage.student is None]

    @property
    def head(self) -> Head | None:
        """The head that the recipe's student is made with."""
        return next((stage.student_head for stage in self.own_stages if stage.student_head is not None), None)

    @property
    def tasks_folder(self) -> Path | None:
        """The folder with the files of `evaluation.tasks`; None for the Hub."""
        corpora = [choice.spec.corpus or self.recipe.corpus for choice in reversed(self.stages)]
        given = [self.recipe.evaluation.data, *(corpus.data for corpus in corpora if corpus is not None)]
        return next((Path(place).expanduser() for place in given if place is not None), None)

    @property
    def aligned_stage(self) -> StagePlan | None:
        """The last stage that teaches the recipe's student finished vectors, and so says how it makes them."""
        return next((stage for stage in reversed(self.own_stages) if stage.teaches_vectors), None)

    @property
    def student_sentence(self) -> SentencePooling | None:
        """How the recipe's student makes sentence vectors, but for a map that it keeps; None where it makes none.

        As the teacher, or as a stage trained it to. A student of a task makes none, whatever its teacher was before it
        was fine-tuned.
        """
        if self.head not in (None, "masked_lm"):
            return None
        if self.aligned_stage is not None:
            return self._as_trained(self.aligned_stage.vectors)
        if self.sentence is not None and self.sentence.fits(self.student.hidden):
            return self._as_trained(self.sentence)
        pooled = [s for s in self.own_stages if any(k.kind == "pooled" for t in s.terms for k in t.student)]
        return finished_pooling(None, pooled[-1].vectors.pooling) if pooled else None

    @property
    def pooling(self) -> str:
        """How sentence vectors are pooled: as the evaluation or the teacher's folder says, else the mean."""
        chosen = self.recipe.evaluation.pooling
        if chosen != "auto":
            return chosen
        return self.sentence.pooling if self.sentence is not None else "mean"

    @property
    def text_alone(self) -> CorpusSettings | None:
        """The recipe's text where no stage reads it: a student as it starts is compared on what is held out of it."""
        corpus = self.recipe.corpus
        if self.stages or corpus is None or corpus.task is not None:
            return None
        found = corpus_settings(corpus, StageTextSpec(), self.teacher_info)
        assert isinstance(found, CorpusSettings)
        return found

    @property
    def vector_teachers(self) -> dict[str, TeacherSpec]:
        """The models whose sentence vectors a stage teaches, by title; students of stages are not among them."""
        return {
            stage.teacher.title: stage.teacher.spec
            for stage in self.stages
            if stage.teacher.stage is None
            and any(key.kind in ("pooled", "vector") for term in stage.terms for key in term.teacher)
        }

    def _as_trained(self, sentence: SentencePooling) -> SentencePooling:
        """Leave out the prompts of a teacher's files that the recipe's student did not read in training."""
        texts = [stage.corpus for stage in self.own_stages if isinstance(stage.corpus, CorpusSettings)]
        read = {prompt for text in texts for prompt in text.source_prompts}
        return sentence.with_prompts(read if all(text.student_reads_prompts for text in texts) else ())

    def vectors(self) -> str | SentenceHead:
        """How sentence vectors of both models are made: as `pooling`, with what the teacher's folder has besides.

        Where its student learns finished vectors these are the teacher's alone, whatever the student's width.
        """
        said = self.sentence
        if said is None or self.recipe.evaluation.pooling != "auto":
            return self.pooling
        has_own = self.aligned_stage is not None and self.student_sentence is not None
        return SentenceHead(said) if has_own or said.fits(self.student.hidden) else self.pooling

    @property
    def vector_stages(self) -> list[StagePlan]:
        """The stages that teach the recipe's student sentence vectors, pooled or finished."""
        return [s for s in self.own_stages if any(k.kind in ("pooled", "vector") for t in s.terms for k in t.student)]

    @property
    def trained_widths(self) -> list[int]:
        """The widths below the whole to which those stages taught vectors to be cut, the widest first."""
        given = (stage.spec.method.get("truncate") or () for stage in self.vector_stages)
        return sorted({width for widths in given for width in widths}, reverse=True)

    def vectors_of_both(self, student: Path) -> tuple[str | SentenceHead, str | SentenceHead]:
        """How the teacher and its saved student make sentence vectors: as their folders say, unless the recipe does.

        A teacher whose folder says nothing makes them as it taught them.

        Args:
            student: The folder of the student.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        own = sentence_pooling(student) if self.recipe.evaluation.pooling == "auto" else None
        if own is None:
            return self.vectors(), self.vectors()
        taught = [stage.teacher_vectors for stage in self.vector_stages]
        return SentenceHead(self.sentence or taught[-1]), SentenceHead(own)


def plan_run(recipe: Recipe) -> RunPlan:
    """Check everything that can be checked without weights, and build the models of no size and run them.

    Layers in range, heads that divide widths, equal heads where a method needs them, teachers that have the head
    whose scores are taught, lengths within positions, terms that couple samples without accumulation, tokenizers that
    agree, sources that exist.

    Args:
        recipe: The recipe.

    Returns:
        What the run will do.

    Raises:
        LimbeckError: one line for the first contradiction.
    """
    teacher = choose_teacher(recipe.teacher)
    student = choose_student(recipe.student, teacher)
    stages: list[StagePlan] = []
    for index in range(len(recipe.stages)):
        stages.append(plan_stage(index, recipe, teacher, student, stages))
    stages = _with_class_weights(_with_class_names(stages), recipe)
    for index, stage in enumerate(stages):
        if isinstance(stage.corpus, LabelledSettings):
            place = f"stages.{index}.corpus" if stage.spec.corpus else "corpus"
            found = check_rows(stage.corpus, place, classes=stage.learns_classes, queries=stage.compares_documents)
            if found.alike is not None:
                raise stage.refuse_one_class(found.alike)
            if found.are_single:
                raise stage.refuse_single_documents()
            stages[index] = replace(stage, absent=found.absent)
    taught = [stage for stage in stages if stage.student is None and stage.student_head]
    if recipe.evaluation.tasks and all(stage.pairing.task == "text" for stage in taught):
        raise RecipeError(
            "evaluation.tasks scores the student's head as it is, but no stage trains one for a task; leave it out "
            "(`limbeck evaluate` fine-tunes a student first), or give a stage a corpus with a task."
        )
    student = with_labels(student, taught)
    for stage in stages:
        learns = stage.student or student
        if stage.teacher.stage is None:
            check_runs(stage.teacher.title, stage.teacher.config, stage.teacher_head)
        check_runs(f"the student {learns.shape}", learns.config, stage.student_head)
    sentence = sentence_pooling(recipe.teacher.model, recipe.teacher.revision)
    if sentence is not None:
        sentence.check_fits(recipe.teacher.model, teacher.shape.hidden)
    plan = RunPlan(recipe, teacher, student, sentence, stages)
    _check_scored_tasks(plan, [stage for stage in taught if stage.pairing.task != "text"])
    return plan


SCORE_LATER = "score it with `limbeck evaluate --as-is --classes`, which names them"
"""Way out where classes have other names."""


def _check_scored_tasks(plan: RunPlan, stages: Sequence[StagePlan]) -> None:
    """Refuse `evaluation.tasks` that a run could not score at its end, for want of rows or of a head that fits.

    Args:
        plan: The run.
        stages: Those that train the head of its student on labelled rows.
    """
    for name in plan.recipe.evaluation.tasks or ():
        try:
            task, last = find_task(name).task, stages[-1]
            if KINDS[task.kind].head is None:
                raise RecipeError(f"{task.title} compares sentence vectors, but here heads are scored; leave it out.")
            saved = type(plan.student_config)(**plan.student_config.to_dict())
            saved.architectures = [model_class(saved, last.student_head).__name__]
            match_head("the student", saved, task, way_out=SCORE_LATER)
            if last.teacher_head is not None and last.teacher.stage is None:
                match_head(last.teacher.title, last.teacher.config, task, way_out=SCORE_LATER)
            check_scored(name, data=plan.tasks_folder)
        except LimbeckError as error:
            raise type(error)(f"evaluation.tasks: {error}") from None


def _with_class_names(stages: list[StagePlan]) -> list[StagePlan]:
    """Let stages that read no scores know the classes by the teacher of a stage that does.

    Their own teacher need not be a classifier, but their rows are labelled all the same. Rows of another task that is
    known by name keep its classes.
    """
    classifiers = [s for s in stages if kind_of(s.teacher_head or s.student_head).has_classes]
    if not classifiers:
        return stages
    named = next((s for s in classifiers if s.teacher_head is not None), classifiers[0])
    return [
        replace(s, corpus=with_classes_of(s.corpus, named.teacher))
        if isinstance(s.corpus, LabelledSettings)
        and kind_of(s.pairing.task).has_classes
        and s.teacher_head is None
        and (s.student_head is None or (s.student is None and named.teacher_head is not None))
        and (s.corpus.rows is None or (named.teacher_head is not None and _same_task(s, named)))
        else s
        for s in stages
    ]


def _same_task(one: StagePlan, other: StagePlan) -> bool:
    """Whether the rows of two stages are of the same task that is known by name."""
    rows = [stage.corpus.rows for stage in (one, other) if isinstance(stage.corpus, LabelledSettings)]
    definitions = [each.definition for each in rows if isinstance(each, TaskRows)]
    return len(definitions) > 1 and definitions[0] == definitions[1]


def _with_class_weights(stages: list[StagePlan], recipe: Recipe) -> list[StagePlan]:
    """Read the weights of classes, and refuse those of a corpus that no stage learns hard labels from."""
    found, read_by = [], dict[str, bool]()
    for number, stage in enumerate(stages):
        corpus, place = recipe.corpus, "corpus.task.class_weights"
        if stage.spec.corpus is not None:
            corpus, place = stage.spec.corpus, f"stages.{number}.{place}"
        given = None if corpus is None or corpus.task is None else corpus.task.class_weights
        if given is None:
            found.append(stage)
            continue
        assert isinstance(stage.corpus, LabelledSettings)
        found.append(replace(stage, class_weights=read_weights(given, stage.corpus.labels, place)))
        read_by[place] = read_by.get(place, False) or any(map(takes_class_weights, stage.terms))
    if unread := next((place for place, is_read in read_by.items() if not is_read), None):
        raise RecipeError(
            f"{unread} is for hard labels, but no stage reads any; give a method a share of them "
            "(hard_label_weight above 0, or soft_label_share below 1), or leave the weights out."
        )
    return found


def summarise(plan: RunPlan) -> Mapping[str, str]:
    """Describe a plan in a few lines, for people."""
    lines = {"teacher": f"{plan.recipe.teacher.model} ({plan.teacher})", "student": str(plan.student)}
    for index, stage in enumerate(plan.stages):
        who = "" if stage.student is None else f"makes {stage.student.shape}: "
        by = "" if stage.spec.teacher is None else f"taught by {stage.teacher.title}: "
        terms = ", ".join(map(_summarise_term, stage.terms))
        lengths = "" if stage.spec.text.schedule is None else f"; {stage.spec.text.schedule}"
        lines[f"stage {index + 1}: {stage.spec.title}"] = who + by + terms + lengths
        if stage.teaches_vectors:
            lines[f"vectors of stage {index + 1}"] = _summarise_vectors(stage)
        if classes := _summarise_classes(stage):
            lines[f"classes of stage {index + 1}"] = classes
        copied = summarise_copies(stage.corpus, labels=learn_labels(stage.terms))
        if copied and copied not in lines.values():
            lines[f"rows of stage {index + 1}"] = copied
        mixed = _summarise_mix(stage.corpus)
        if mixed and mixed not in lines.values():
            lines[f"sources of stage {index + 1}"] = mixed
    return lines | {f"chosen {key}": reason for key, reason in (plan.recipe.reasons or {}).items()}


def _summarise_classes(stage: StagePlan) -> str:
    """Say where classes are matched with those of a task by a guess, and which have no row."""
    said = [f"no row has the class {' or '.join(stage.absent)}"] if stage.absent else []
    rows = stage.corpus.rows if isinstance(stage.corpus, LabelledSettings) else None
    if isinstance(rows, TaskRows) and stage.teacher_head is not None and stage.teacher.stage is None:
        said += match_head(stage.teacher.title, stage.teacher.config, rows.definition.task).notes
    return "; ".join(said)


def _summarise_vectors(stage: StagePlan) -> str:
    """Say how both models make their vectors, and where nothing says so of the teacher."""
    own, kept = str(stage.vectors), stage.kept_map
    own += f" + a map {kept.inputs} → {kept.outputs} that it keeps" if kept is not None else ""
    unsaid = "" if stage.pairing.sentence is not None else ", since none of its files says how"
    ends = " + Normalize" if stage.vectors.normalize else ""
    return f"the student's by {own}{ends}; the teacher's by {stage.teacher_vectors}{ends}{unsaid}"


def _summarise_mix(settings: CorpusSettings | LabelledSettings) -> str:
    """The shares of mixed sources, and how sources are read; shares that follow sizes are about: no text is read."""
    if not isinstance(settings, CorpusSettings):
        return ""
    mixing = settings.stated_mixing
    if mixing is None and not settings.uses:
        return ""

    titles = list(settings.titles)
    if settings.uses:
        has_named_parts = settings.mix is not None and settings.mix.by is not None
        names = settings.titles if has_named_parts else settings.places
        titles = [_summarise_use(name, use) for name, use in zip(names, settings.uses, strict=True)]
    ending = "" if settings.student_reads_prompts else "; the student reads no prompts"
    if mixing is None:
        return ", ".join(titles) + ending

    if not mixing.reads_sizes:
        shares = mixing.shares([None] * len(titles))
        return _list_shares(titles, shares) + ending
    sizes = [stored_size(source) for source in settings.places]
    if None in sizes:
        return ", ".join(titles) + ending
    return _list_shares(titles, mixing.shares(sizes)) + " (about, by the stored sizes of the files)" + ending


def _list_shares(titles: Sequence[str], shares: Sequence[float]) -> str:
    return ", ".join(f"{title} {share:.1%}" for title, share in zip(titles, shares, strict=True))


def _summarise_use(title: str, use: SourceUse) -> str:
    """Name a source with its role, its prompt and its kinds of pieces."""
    said = [use.role, f"prompt {use.prompt!r}" if use.prompt else None, " and ".join(use.units)]
    return f"{title} ({', '.join(filter(None, said))})" if any(said) else title


def _summarise_term(term: Term) -> str:
    student, teacher = (", ".join(map(str, keys)) for keys in (term.student, term.teacher))
    cut = f"; first {term.options['prefix']} numbers" if "prefix" in term.options else ""
    return f"{term.weight:g} x {term.objective}({student}{' <- ' if teacher else ''}{teacher}{cut})"
