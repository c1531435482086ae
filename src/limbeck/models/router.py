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
from limbeck.models.loaded import LoadedModel, open_model
from limbeck.models.locating import MODULES, locate_model
from limbeck.models.sentence_heads import SentenceHead

LEAST_FOUND = 0.5
"""Of the sample texts that find themselves, where no record says that the student was taught by the teacher."""
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
    """Return a pair, given it as the format's source."""
    assert isinstance(source, Pair)
    return source


@dataclass(frozen=True)
class Taught:
    """What the record of a run says of the vectors of its student.

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
    """Read from the record of its run what a student's vectors were taught by; None without a run.

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
    method = run.stages[stages[-1]].method if stages else ""
    aligned = [index for index in stages if any(link.aligns_vectors for link in run.stages[index].layers)]
    if not aligned:
        return Taught(method, is_aligned=False)

    # The last stage that aligned vectors says which teacher it was.
    last = aligned[-1]
    planned = run.recipe.stages[last] if last < len(run.recipe.stages) else records.PlannedStage()
    if planned.teacher is None:
        teacher = run.recipe.teacher
        return Taught(method, True, teacher.model, teacher.revision, run.teacher.weights)
    if planned.teacher.stage is not None:
        place = next(folder.glob(f"{paths.STAGES}/*-{planned.teacher.stage}/{paths.STUDENT}"), None)
        return Taught(method, True, None if place is None else str(place))
    weights = run.stage_teachers.get(run.stages[last].name)
    return Taught(method, True, planned.teacher.model, planned.teacher.revision, weights)


def _stages_of(student: Path, folder: Path, run: records.Run) -> list[int]:
    """Return the places of the stages that trained a student: its own stage, or all that trained the run's."""
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
    widths = []
    for each in (student, teacher):
        if each.sentence is None:
            raise ModelError(
                f"'{each.name}' does not say how it makes sentence vectors (it has no {MODULES}), but a router is "
                "made of models that do; save it once with sentence-transformers, including its pooling."
            )
        widths.append(SentenceHead(each.sentence).width(shape_of(each.model.config).hidden))
    if widths[0] != widths[1]:
        raise ModelError(
            f"The vectors of '{student.name}' have width {widths[0]} and those of '{teacher.name}' have "
            f"{widths[1]}, but an index holds one width; distil a student by aligned_embedding, which learns a map "
            "to its teacher's width."
        )
    known = None if taught is None else taught.weights
    is_taught = known is not None and fingerprint_beside(known, teacher.name, teacher.revision) == known
    shared = {field.name: getattr(student, field.name) for field in fields(LoadedModel)}
    return Pair(**shared, documents=teacher, is_taught=is_taught)


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
    texts = list(dict.fromkeys(texts))
    vectors = {}
    for role, model in pair.by_role.items():
        roles_and_texts = [(text, role) for text in texts]
        vectors[role] = F.normalize(vector_check.own_vectors(model, roles_and_texts), dim=-1)
    scores = vectors["query"] @ vectors["document"].T
    # Texts that are cut to the same tokens have the same vector.
    is_nearest = scores.diagonal() >= scores.amax(1) - _TIE
    share = float(is_nearest.float().mean())
    if share < LEAST_FOUND and not pair.is_taught:
        raise ModelError(
            f"The queries of '{pair.name}' find {share:.0%} of {len(texts)} sample texts among the documents of "
            f"'{pair.documents.name}', and no record says that it learned from that model; give its teacher as "
            "--documents."
        )
    return share
