"""The check of a model's sentence vectors against those of sentence-transformers.

limbeck reads from a model's files how its sentence vectors are made, and makes them itself. If it misread the files,
students would learn from wrong vectors.
"""

from collections.abc import Iterator

from limbeck.diagnosis.findings import Finding
from limbeck.errors import ModelError
from limbeck.models import vector_check


def find_vectors(model: str) -> Iterator[Finding]:
    """Compare the sentence vectors of a model with those that sentence-transformers makes."""
    name = f"sentence vectors of {model}"
    try:
        difference = vector_check.compare_with_sentence_transformers(model)
    except ModelError as error:
        # The fault is in the model, and its message has the way out.
        yield Finding(name, "failed", str(error))
        return
    # Without a difference, nothing was compared.
    if difference is None:
        if vector_check.is_installed():
            text = "the model's files do not define any"
        else:
            text = "not compared: sentence-transformers is not installed"
        yield Finding(name, "absent", text)
        return
    text = vector_check.describe_difference(difference)
    facts = {"difference": difference}
    if difference <= vector_check.LARGEST_DIFFERENCE:
        yield Finding(name, "ok", text, facts=facts)
    else:
        yield Finding(name, "failed", text, way_out="report it, with all lines of this examination", facts=facts)
