"""The students, as they are before the training, that a run's student is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from limbeck.core.records import StartedHead, UntrainedStart
from limbeck.training.student_maker import StudentMaker


@dataclass(frozen=True)
class UntrainedStudents:
    """Students of a run's shape without its training; each figure of the untrained start is that of the better one.

    Attributes:
        models: One student; or two, with the layers as they are copied and with the same layers fitted.
        record: The record of the start, without figures.
        copied_head: The parameters of their head that another model gave.
    """

    models: list[PreTrainedModel]
    record: UntrainedStart
    copied_head: list[str]


def make_untrained(makers: Sequence[StudentMaker]) -> UntrainedStudents:
    """Make the untrained students of a run.

    Args:
        makers: The maker of the first student, and of the same with fitted layers where the layers are to be fitted.
    """
    model, initialisation = makers[0].make()
    head = initialisation.head or StartedHead()
    record = UntrainedStart(summary=initialisation.summary)
    students = UntrainedStudents([model], record, head.copied)
    for maker in makers[1:]:
        if maker.read_batches is None:
            record.summary += (
                " The layers are not fitted to the teacher: text that is streamed, or read with another tokenizer than "
                "the teacher's, cannot be read for a fit."
            )
            continue
        fitted_model, fitted_initialisation = maker.make()
        fit = fitted_initialisation.fit
        if fit is not None and fit.used:
            students.models.append(fitted_model)
            record.fitted_tokens = fit.tokens
            record.summary = record.summary.replace("Starts from", "Both start from", 1)
        else:
            # The summary says that the fit was left out, and why. The layers are then the copied ones.
            record.summary = fitted_initialisation.summary
    return students
