"""Output distribution transfer: the teacher's scores as soft labels."""

from pydantic import Field

from limbeck.methods.composition import COMPARATIVE_STUDY, MethodOptions, Pairing, Temperature, Term, cite
from limbeck.methods.registry import register_as_method
from limbeck.methods.terms import Positions, soft_label_term


class OutputDistributionOptions(MethodOptions):
    """Options of output distribution transfer (arXiv 2310.08797, section 3)."""

    temperature: Temperature = Field(1.0, description="T, which softens both distributions (appendix B).")
    positions: Positions = Field(
        "masked",
        description="On text: teach at the masked positions, as MiniLM's MLM-KD baseline does, or at all of them.",
    )


@register_as_method(
    options=OutputDistributionOptions,
    citation=cite(COMPARATIVE_STUDY, "section 3, equation 5"),
    stages=({"name": "hidden_states"}, {"name": "output_distribution"}),
)
def output_distribution(options: OutputDistributionOptions, pairing: Pairing) -> list[Term]:
    """The teacher's output scores as soft labels; best after a hidden_states stage.

    Make the one term on output scores (eq. 5).
    """
    return [soft_label_term(pairing, 1.0, options.temperature, options.positions)]
