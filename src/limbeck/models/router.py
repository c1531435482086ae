"""A student for queries beside its teacher for documents: which teacher that is, and the folder that joins them."""

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
"""Of the sample texts that find themselves, where no record says that the student was taught by the teacher."""
# Two similarities this near are equal.
_TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Pair(LoadedModel):
    """A student for queries, and with it a model for documents.

    Attributes:
        documents: The model for documents.
        is_taught: Whether the record of the student's run says that it learned from this very model.
    """

    documents: LoadedModel
    is_taught: bool

    @property
    def by_role(self) -> dict[str, LoadedModel]:
        """The models by what they read."""
        return {"query": self, "document": self.documents}


def pair_of(source: LoadedModel) -> Pair:
    """Return a source that a format receives as the pair that it is."""
    assert isinstance(source, Pair)
    return source


@dataclass(frozen=True)
class Taught:
    """The facts in the record of a run about the vectors of its student.

    Attributes:
        method: The last stage's method, for messages.
        is_aligned: Whether its vectors were brought to those of a teacher.
        teacher: The teacher's place as the recipe names it; None where a stage made it that is gone.
        revision: Of a Hub name.
        weights: Its hash, see `fingerprint_beside`.
    """

    method: str
    is_aligned: bool
    teacher: str | None = None
    revision: str | None = None
    weights: str | None = None


def find_taught(student: Path) -> Taught | None:
    """Read from the record of a student's run which teacher its vectors learned from; None without a run.

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
    aligning_stages = [index for index in stages if _aligns_vectors(run, index)]
    if not aligning_stages:
        return Taught(method, is_aligned=False)

    # The last stage that aligned vectors says which teacher it was.
    last = aligning_stages[-1]
    planned = records.PlannedStage()
    if last < len(run.recipe.stages):
        planned = run.recipe.stages[last]
    if planned.teacher is None:
        teacher = run.recipe.teacher
        return Taught(
            method, is_aligned=True, teacher=teacher.model, revision=teacher.revision, weights=run.teacher.weights
        )
    if planned.teacher.stage is not None:
        # The teacher is the student of an earlier stage, whose folder may have been removed.
        places = folder.glob(f"{paths.STAGES}/*-{planned.teacher.stage}/{paths.STUDENT}")
        place = next(places, None)
        return Taught(method, is_aligned=True, teacher=None if place is None else str(place))
    weights = run.stage_teachers.get(run.stages[last].name)
    return Taught(
        method,
        is_aligned=True,
        teacher=planned.teacher.model,
        revision=planned.teacher.revision,
        weights=weights,
    )


def _aligns_vectors(run: records.Run, stage: int) -> bool:
    return any(link.aligns_vectors for link in run.stages[stage].layers)


def _stages_of(student: Path, folder: Path, run: records.Run) -> list[int]:
    """Return the indices of the stages that trained a student.

    They are its own stage for the student of a stage, and all that trained the run's student for that.
    """
    parent = student.resolve().parent
    if parent == folder.resolve():
        return [index for index, stage in enumerate(run.stages) if stage.student is None]
    # The folder of a stage is NUMBER-NAME.
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
            "with its teacher's, so its queries would find nothing there; distil a student by aligned_embedding or "
            "sentence_embedding."
        )
    student = open_model(name)
    teacher = _open_documents(name, documents, taught)
    student_width = _vector_width(student)
    teacher_width = _vector_width(teacher)
    if student_width != teacher_width:
        raise ModelError(
            f"The vectors of '{student.name}' have width {student_width} and those of '{teacher.name}' have "
            f"{teacher_width}, but an index holds one width; distil a student by aligned_embedding, which learns a map "
            "to its teacher's width."
        )
    is_taught = False
    if taught is not None and taught.weights is not None:
        is_taught = fingerprint_beside(taught.weights, teacher.name, teacher.revision) == taught.weights
    # A pair is the student with further fields.
    student_fields = {field.name: getattr(student, field.name) for field in fields(LoadedModel)}
    return Pair(**student_fields, documents=teacher, is_taught=is_taught)


def _vector_width(model: LoadedModel) -> int:
    """Return the width of a model's sentence vectors.

    Raises:
        ModelError: for a model that makes none.
    """
    if model.sentence is None:
        raise ModelError(
            f"'{model.name}' does not say how it makes sentence vectors (it has no {MODULES}), but a router is "
            "made of models that do; save it once with sentence-transformers, including its pooling."
        )
    hidden = shape_of(model.model.config).hidden
    return SentenceHead(model.sentence).width(hidden)


def _open_documents(name: str, documents: str | None, taught: Taught | None) -> LoadedModel:
    """Load the model for documents: the one that is given, else the teacher of the student's run."""
    if documents is not None:
        return open_model(documents)
    if taught is None or taught.teacher is None:
        raise ModelError(f"Nothing says which teacher '{name}' learned from; give it as --documents.")
    try:
        return open_model(taught.teacher, taught.revision)
    except ModelError as error:
        raise ModelError(f"The teacher of '{name}' cannot be loaded; give its folder as --documents. {error}") from None


def share_of_own_documents(pair: Pair, texts: Sequence[str]) -> float:
    """Return the share of texts whose vector as a query is nearest to that of the same text as a document.

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
    # Texts that are cut to the same tokens have the same vector.
    is_nearest = scores.diagonal() >= scores.amax(1) - _TIE
    share = float(is_nearest.float().mean())
    if share < LEAST_FOUND and not pair.is_taught:
        raise ModelError(
            f"The queries of '{pair.name}' find {share:.0%} of {len(different_texts)} sample texts among the documents "
            f"of '{pair.documents.name}', and no record says that it learned from that model; give its teacher as "
            "--documents."
        )
    return share
