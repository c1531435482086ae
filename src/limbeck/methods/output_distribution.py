"""Output distribution transfer: the teacher's scores as soft labels."""

from __future__ import annotations

from pydantic import Field, model_validator

from limbeck.methods.citation import COMPARATIVE_STUDY, cite
from limbeck.methods.options import MethodOptions, Temperature
from limbeck.methods.pairing import Pairing
from limbeck.methods.prediction_terms import Positions, annealed_score_term, soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term


class OutputDistributionOptions(MethodOptions):
    """Options of output distribution transfer (arXiv 2310.08797, section 3)."""

    added = frozenset({"annealing"})
    """Options that came after the first release; see `MethodOptions.added`."""

    temperature: Temperature = Field(1.0, description="T, which softens both distributions (appendix B).")
    positions: Positions = Field(
        "masked",
        description="On text: teach at the masked positions, as MiniLM's MLM-KD baseline does, or at all positions.",
    )
    annealing: int | None = Field(
        None,
        ge=1,
        description=(
            "On classes and values: first temperature of Annealing KD's stage I, whose loss is the squared error "
            "of scores."
        ),
    )

    @model_validator(mode="after")
    def _one_kind_of_temperature(self) -> OutputDistributionOptions:
        """Refuse a temperature beside one that falls."""
        if self.annealing is not None and self.temperature != 1:
            raise ValueError("annealing sets the temperature: leave temperature out")
        return self


@register_as_method(
    options=OutputDistributionOptions,
    citation=cite(COMPARATIVE_STUDY, "section 3, equation 5"),
    stages=({"name": "hidden_states"}, {"name": "output_distribution"}),
)
def output_distribution(options: OutputDistributionOptions, pairing: Pairing) -> list[Term]:
    """The teacher's output scores as soft labels; best after a hidden_states stage.

    Make the one term on output scores (eq. 5): the divergence of softmax(z^S / T) from softmax(z^T / T) or, with
    `annealing`, the squared error of the scores z.
    """
    if options.annealing is not None:
        return [annealed_score_term(pairing, weight=1.0, highest=options.annealing)]
    return [soft_label_term(pairing, weight=1.0, temperature=options.temperature, positions=options.positions)]
