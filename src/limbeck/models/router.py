"""A student for queries beside its teacher for documents: which teacher that is, and whether the two fit together.

Documents are encoded once, by the large teacher, and queries often, by the small student. That works if the student's
vectors were *aligned* with the teacher's: trained to be the same vectors, in the same space. A folder that joins the
two models is a *router* of sentence-transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from torch.nn import functional as F

from limbeck.core import paths, records
from limbeck.errors import ModelError
from limbeck.models import vector_check
from limbeck.models.families import shape_of
from limbeck.models.fingerprint import fingerprint_beside
from limbeck.models.folder_files import MODULES
from limbeck.models.loaded import LoadedModel, open_model
from limbeck.models.locating import locate_model
from limbeck.models.sentence_heads import SentenceHead

LEAST_FOUND = 0.5
"""Least share of sample texts that are nearest to themselves, if no record proves which model taught the student."""
_TIE = 1e-6
"""Difference of two similarities up to which they count as equal."""


@dataclass(frozen=True, kw_only=True)
class Pair(LoadedModel):
    """A student for queries, which the inherited fields describe, and with it a model for documents.

    Attributes:
        documents: The model for documents.
        is_taught: Whether the record of the student's run proves, by a hash, that it learned from this very model.
    """

    documents: LoadedModel
    is_taught: bool

    @property
    def by_role(self) -> dict[str, LoadedModel]:
        """The two models by their role, `query` and `document`."""
        return {"query": self, "document": self.documents}


def pair_of(source: LoadedModel) -> Pair:
    """Return a loaded model as a pair, which it must be; formats receive it by the type of their base class."""
    assert isinstance(source, Pair)
    return source


@dataclass(frozen=True)
class Taught:
    """Facts from the record of a run about the teaching of its student's vectors.

    Attributes:
        method: The last stage's method, for messages; empty where no stage is known.
        is_aligned: Whether a stage aligned the student's vectors with those of a teacher.
        teacher: That teacher's place: a folder or name as in the recipe. None if it was the student of an earlier stage
            whose folder is gone, or if nothing was aligned.
        revision: The teacher's revision, if it has a Hub name.
        weights: The teacher's hash, see `fingerprint_beside`; None where the record has none.
    """

    method: str
    is_aligned: bool
    teacher: str | None = None
    revision: str | None = None
    weights: str | None = None


def find_taught(student: Path) -> Taught | None:
    """Read from the record of a student's run which teacher its vectors were aligned with; None without a run.

    A run has *stages*, each of which trains the student by a method. A stage learns from the recipe's teacher, from one
    of its own, or from the student of an earlier stage.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    folder = paths.run_of_student(student)
    if folder is None:
        return None
    run = records.load(records.Run, folder)
    if run.is_empty:
        return None
    stages = _stages_of(student, folder, run)
    method = ""
    if stages:
        method = run.stages[stages[-1]].method
    aligning_stages = [stage for stage in stages if _aligns_vectors(run, stage)]
    if not aligning_stages:
        return Taught(method, is_aligned=False)

    # The last stage that aligned vectors decides.
    return _taught_in_stage(run, folder, aligning_stages[-1], method)


def _taught_in_stage(run: records.Run, folder: Path, stage: int, method: str) -> Taught:
    """Return the teacher of a stage that aligned the student's vectors.

    Args:
        run: The record of the run.
        folder: The run's folder.
        stage: The stage's number, from 0.
        method: The last stage's method, for messages.
    """
    # A record may lack the stage's part of the recipe.
    stage_of_recipe = records.PlannedStage()
    if stage < len(run.recipe.stages):
        stage_of_recipe = run.recipe.stages[stage]
    stage_teacher = stage_of_recipe.teacher
    if stage_teacher is None:
        # The stage names no teacher, so it learned from the recipe's.
        teacher = run.recipe.teacher
        return Taught(
            method, is_aligned=True, teacher=teacher.model, revision=teacher.revision, weights=run.teacher.weights
        )
    if stage_teacher.stage is not None:
        # The teacher is the student of an earlier stage. The folders of stages are named NUMBER-NAME, such as
        # `stages/1-general/student`, and may have been removed.
        earlier_students = list(folder.glob(f"{paths.STAGES}/*-{stage_teacher.stage}/{paths.STUDENT}"))
        earlier_student = str(earlier_students[0]) if earlier_students else None
        return Taught(method, is_aligned=True, teacher=earlier_student)
    # The stage has a teacher of its own. Hashes of these are recorded by the stage's name.
    weights = run.stage_teachers.get(run.stages[stage].name)
    return Taught(
        method,
        is_aligned=True,
        teacher=stage_teacher.model,
        revision=stage_teacher.revision,
        weights=weights,
    )


def _aligns_vectors(run: records.Run, stage: int) -> bool:
    """Whether a stage aligned the student's sentence vectors with its teacher's; its links are what it taught."""
    return any(link.aligns_vectors for link in run.stages[stage].layers)


def _stages_of(student: Path, folder: Path, run: records.Run) -> list[int]:
    """Return the indices of the stages that trained a student.

    Args:
        student: The student's folder.
        folder: The run's folder.
        run: The run's record.
    """
    parent = student.resolve().parent
    if parent == folder.resolve():
        # This is the run's student. Stages that trained another student, which has a folder of its own, name that one.
        return [index for index, stage in enumerate(run.stages) if stage.student is None]
    # This is the student of one stage, in a folder NUMBER-NAME, where stages are numbered from 1.
    number = parent.name.partition("-")[0]
    return [index for index in range(len(run.stages)) if str(index + 1) == number]


def open_pair(name: str, documents: str | None) -> Pair:
    """Load a student and the model for documents.

    Args:
        name: The student: a run's folder, a model's folder, `package:NAME` or a Hub name.
        documents: The model for documents; None takes the teacher that the record of the student's run names.

    Raises:
        ModelError: for a student that was not taught vectors in its teacher's space, for vectors of other widths, for a
            teacher that cannot be found, and for a model that makes no sentence vectors.
    """
    taught = find_taught(Path(locate_model(name)).expanduser())
    if taught is not None and not taught.is_aligned:
        raise ModelError(
            f"'{name}' was taught by {taught.method or 'no method'}, which does not align its sentence vectors "
            "with its teacher's, so its queries would find none of the teacher's documents; distil a student by "
            "aligned_embedding or sentence_embedding."
        )
    student = open_model(name)
    teacher = _open_documents(name, documents, taught)
    student_width = _vector_width(student)
    teacher_width = _vector_width(teacher)
    if student_width != teacher_width:
        raise ModelError(
            f"The vectors of '{student.name}' have width {student_width} and those of '{teacher.name}' have "
            f"{teacher_width}, but all vectors of an index need the same width; distil a student by "
            "aligned_embedding, which learns a map to its teacher's width."
        )
    # The run's record has a hash of its teacher's weights. The model for documents is that teacher if it has the same.
    is_taught = False
    if taught is not None and taught.weights is not None:
        is_taught = fingerprint_beside(taught.weights, teacher.name, teacher.revision) == taught.weights
    # A pair has the fields of its student and two more.
    student_fields = {field.name: getattr(student, field.name) for field in fields(LoadedModel)}
    return Pair(**student_fields, documents=teacher, is_taught=is_taught)


def _vector_width(model: LoadedModel) -> int:
    """Return the width of a model's sentence vectors.

    Raises:
        ModelError: for a model that makes none.
    """
    if model.sentence is None:
        raise ModelError(
            f"'{model.name}' does not say how it makes sentence vectors (it has no {MODULES}), but a router needs "
            "models that do; save the model once with sentence-transformers, including its pooling."
        )
    hidden = shape_of(model.model.config).hidden
    return SentenceHead(model.sentence).width(hidden)


def _open_documents(name: str, documents: str | None, taught: Taught | None) -> LoadedModel:
    """Load the model for documents: `documents` if that is given, else the teacher of the student's run."""
    if documents is not None:
        return open_model(documents)
    if taught is None or taught.teacher is None:
        raise ModelError(f"Nothing says which teacher '{name}' learned from; name its teacher with --documents.")
    try:
        return open_model(taught.teacher, taught.revision)
    except ModelError as error:
        raise ModelError(
            f"The teacher of '{name}' cannot be loaded; give the teacher's folder as --documents. {error}"
        ) from None


def share_of_own_documents(pair: Pair, texts: Sequence[str]) -> float:
    """Return the share of texts whose vector as a query is nearest to their own vector as a document.

    This is near 1 for a student that learned from the model for documents, and near 0 for vectors of another space.

    Args:
        pair: Both models.
        texts: Sample text.

    Raises:
        ModelError: for a low share, where no record says that the student learned from this model.
    """
    different_texts = list(dict.fromkeys(texts))
    vectors = {}
    for role, model in pair.by_role.items():
        texts_with_role = [(text, role) for text in different_texts]
        vectors[role] = F.normalize(vector_check.own_vectors(model, texts_with_role), dim=-1)
    # [queries, documents]; a text's own document is on the diagonal.
    scores = vectors["query"] @ vectors["document"].T
    # A tie counts as nearest: texts that are cut to the same tokens have the same vector.
    is_nearest = scores.diagonal() >= scores.amax(1) - _TIE
    share = float(is_nearest.float().mean())
    if share < LEAST_FOUND and not pair.is_taught:
        raise ModelError(
            f"The queries of '{pair.name}' find {share:.0%} of {len(different_texts)} sample texts among the "
            f"documents of '{pair.documents.name}', and no record says that '{pair.name}' learned from that model; "
            "name its teacher with --documents."
        )
    return share
