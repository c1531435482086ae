"""Checks of a resumed run: its teachers and text must be those that it began with, wherever they lie now.

Both are known by hashes of their content, so that their files may have moved. The hashes of the beginning are in the
run's record (*before*), and are compared with those of the plan that goes on (*now*).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from limbeck.core import records
from limbeck.corpus import CorpusSettings, LabelledSettings
from limbeck.corpus.settings.parallel import describe_place
from limbeck.errors import OutputError
from limbeck.models.fingerprint import fingerprint_beside
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan


@dataclass(frozen=True)
class TeacherHashes:
    """Hashes of the models that teach a run: of weights, configuration and tokenizer together.

    Args:
        recipe: The hash of the recipe's teacher; None in a record without it.
        by_stage: The hashes of the teachers that stages name themselves, by the stage's title.
    """

    recipe: str | None
    by_stage: Mapping[str, str]

    @classmethod
    def of_record(cls, run: records.Run) -> "TeacherHashes":
        """Return the hashes with which a run was begun."""
        return cls(run.teacher.weights, run.stage_teachers)

    @classmethod
    def of_plan(cls, plan: RunPlan, before: "TeacherHashes") -> "TeacherHashes":
        """Hash the teachers of a plan.

        Args:
            plan: The plan.
            before: The hashes with which the run was begun; a hash of an older form is made again in that form.
        """
        by_stage: dict[str, str] = {}
        for stage in plan.stages:
            # A teacher that is the student of an earlier stage is made by the run itself, so its hash says nothing.
            is_student_of_run = stage.teacher.stage is not None
            if stage.spec.teacher is not None and not is_student_of_run:
                title = stage.spec.title
                by_stage[title] = hash_of_teacher(stage.teacher, before.by_stage.get(title))
        return cls(hash_of_teacher(plan.teacher_info, before.recipe), by_stage)


def hash_of_teacher(teacher: TeacherInfo, before: str | None) -> str:
    """Return a hash by which a resumed run sees that a teacher is the same.

    Args:
        teacher: The teacher, or several teachers that are combined.
        before: The hash with which the run was begun, by whose form the new one is made so that both can be compared;
            None chooses the present form.
    """
    if teacher.combination is not None:
        # The hashes of single teachers have had several forms; those of several teachers always had this one.
        return " ".join(hash_of_teacher(member, before=None) for member in teacher.members)
    # Outputs that take the place of a model, such as vectors in a file, have a hash of their own; a model has "" here.
    identity = teacher.facts.identity
    if not teacher.is_known_model:
        return identity
    weights = fingerprint_beside(before, teacher.spec.model, teacher.spec.revision)
    return f"{weights} {identity}" if identity else weights


def check_same_teachers(folder: Path, plan: RunPlan, before: TeacherHashes, now: TeacherHashes) -> None:
    """Refuse to go on with a run under another teacher than it began with.

    Args:
        folder: The run's folder, for the message.
        plan: The plan.
        before: The hashes with which the run was begun.
        now: The hashes of the plan's teachers.

    Raises:
        OutputError: naming the first teacher that differs.
    """
    # Older records lack some hashes, which are then not compared.
    if before.recipe is not None and before.recipe != now.recipe:
        raise _other_teacher_error(folder, owner="The teacher", key="teacher.model")
    titles = [stage.spec.title for stage in plan.stages]
    for title, weights in now.by_stage.items():
        weights_before = before.by_stage.get(title)
        if weights_before is not None and weights_before != weights:
            number = titles.index(title)
            raise _other_teacher_error(
                folder, owner=f"The teacher of stage {title!r}", key=f"stages.{number}.teacher.model"
            )


def _other_teacher_error(folder: Path, *, owner: str, key: str) -> OutputError:
    return OutputError(
        f"{owner} is not the one with which the run in '{folder}' was started: its weights, configuration or tokenizer "
        f"differ. Give that one with --set {key}=PLACE, or start again with --overwrite."
    )


def check_same_text(
    folder: Path, plan: RunPlan, before: records.CorpusText | None, now: records.CorpusText | None
) -> None:
    """Refuse to go on with a run on other text than it began with.

    Args:
        folder: The run's folder, for the message.
        plan: The plan.
        before: The text with which the run was begun; None where its record does not say it.
        now: The text of the plan.

    Raises:
        OutputError: naming the first text that differs.
    """
    if before is None or now is None:
        return
    # A view is the text of a stage at one of its lengths. The records of both texts list the views in this order.
    views = [(stage, settings) for stage in plan.stages for settings in stage.corpora]
    # Records of earlier versions may lack the last views, which are then not compared.
    for old, new, (stage, settings) in zip(before.views, now.views, views, strict=False):
        # Records of earlier versions have no hashes of content. Their fingerprint depends on paths and dates too.
        changed_text = None
        if old.content:
            changed_text = _changed_text(old, new, stage, settings)
            way_out = f"put it back, give its place with --set {_key_of_text(plan, stage, settings)}"
        elif old.fingerprint != new.fingerprint:
            changed_text = "The text, or its path or date,"
            way_out = "put it back where it was, with its dates"
        if changed_text is not None:
            raise OutputError(
                f"{changed_text} has changed since the run in '{folder}' was started, so the run cannot go on to the "
                f"same result; {way_out}, or start again with --overwrite."
            )


def _changed_text(
    old: records.CorpusView, new: records.CorpusView, stage: StagePlan, settings: CorpusSettings | LabelledSettings
) -> str | None:
    """Return the name of the first text whose hash differs; None where all are the same.

    Args:
        old: The view of the run's record; `content` has a hash for each source, then one for the development rows if
            there are any, then one for the tokenizer's output.
        new: The view of the plan, likewise.
        stage: The stage.
        settings: The settings of the text at the view's length.
    """
    names = [f"The text of the source '{describe_place(source)}'" for source in settings.places]
    if stage.development is not None:
        names.append(f"The text of the development rows '{stage.development.title}'")
    names.append("The tokenizer's output for the text")
    # If the numbers of texts differ, the hashes that the shorter list lacks are None here, and so differ from the
    # others.
    for name, old_hash, new_hash in zip_longest(names, old.content, new.content, fillvalue=None):
        if old_hash != new_hash:
            # The last hash of a longer list has no name.
            return name or "The text"
    return None


def _key_of_text(plan: RunPlan, stage: StagePlan, settings: CorpusSettings | LabelledSettings) -> str:
    """Return the recipe's key for the place of a text, as `--set` takes it: for example `corpus.sources=[PLACE]`.

    Args:
        plan: The plan of the run.
        stage: The stage that reads the text.
        settings: The settings of that text. Their `rows` are set if it is a task's folder in place of sources.
    """
    # A stage reads the recipe's text unless it names a text itself.
    corpus = plan.recipe.corpus
    owner = ""
    if stage.spec.corpus is not None:
        corpus = stage.spec.corpus
        owner = f"stages.{plan.stages.index(stage)}."
    if isinstance(settings, LabelledSettings) and settings.rows is not None:
        return f"{owner}corpus.data=DIR"
    if corpus is None or corpus.sources:
        return f"{owner}corpus.sources=[PLACE]"
    # A corpus without sources mixes the files that a pattern finds.
    return f"{owner}corpus.mix.by=PATTERN"
