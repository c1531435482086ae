"""What a recipe measures once its student is trained."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from limbeck.core.fields import Count, Grown, Length, Name, Place
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.registry import parse_tasks


class EvaluationSpec(Grown):
    """What is measured once the student is trained, teacher beside student."""

    enabled: bool = True
    """Whether anything is measured."""
    quality: bool = True
    """Sentence-pair agreement and retrieval on held-out text."""
    speed: bool = True
    """Latency, measured on teacher and student in turn."""
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """How sentence vectors are pooled; auto: as the teacher's folder says, else mean."""
    batch_sizes: list[Annotated[Count, Field(le=65_536)]] | None = Field(
        None,
        min_length=1,
        description="Batch sizes for the latency; default: 1 and 32.",
    )
    length: Length = 128
    """Tokens per text for the latency, and the longest text for the quality."""
    pairs: int | None = Field(None, ge=10, le=10_000_000)
    """Sentence pairs for the agreement; default: 1,500."""
    retrieval_pairs: int | None = Field(None, ge=10, le=1_000_000)
    """Largest pool of the retrieval; default: 2,000. It grows from 500 until the teacher's MRR@10 is 0.9 or less."""
    latency_seconds: float = Field(12.0, gt=0, le=600)
    """Time for all latency measurements together. Each batch size gets at least five passes of both models.
    limbeck leaves out a further batch size if its passes would take more than a minute and more than five times this
    setting."""
    tasks: list[Name] | None = None
    """Tasks to score a student with a task's head on; default: the development rows of its last labelled stage."""
    data: Place | None = None
    """Folder with these tasks' files; default: that of the last corpus of a named task, else the Hugging Face Hub."""
    added = frozenset({"tasks", "data"})
    """Keys that came after the first release; a document has them only where they are given."""

    @model_validator(mode="after")
    def _data_of_tasks(self) -> EvaluationSpec:
        """Refuse a folder with the files of tasks where no tasks are named."""
        if self.data is not None and self.tasks is None:
            raise ValueError(
                "'data' is the folder with the files of evaluation.tasks, but no tasks are named: name tasks, or "
                "leave 'data' out"
            )
        return self

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_of_tasks(cls, value: Any) -> Any:
        """Replace names of groups of tasks by the tasks; what is no list of names is left to the type of the field."""
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            return value
        try:
            return parse_tasks(",".join(value))
        except LimbeckError as error:
            raise ValueError(str(error)) from None
