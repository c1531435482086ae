"""The reward of a student's shape: low loss at low latency.

Source: comparative study (arXiv 2310.08797) appendix C, equation 12, after KD-NAS (Trivedi et al. 2023).
"""

TARGET_SHARE = 0.6
"""Share of the teacher's latency at which a student is neither rewarded nor punished for its own."""
EXPONENT = -0.06
"""How much latency counts: a student of half the latency has 4 % more reward."""


def shape_reward(loss: float, latency: float, teacher_latency: float) -> float:
    """Return (1 - L_HS) * (lat(S) / (0.6 * lat(T)))^-0.06.

    At a loss of 0 the reward is 1 for a student that takes 0.6 of its teacher's time, more for a faster one. Above a
    loss of 1 the first factor is negative and the second then prefers the slower student: scale the loss so that an
    untrained student is at about 1.

    Args:
        loss: The hidden-states loss of the student, at least 0.
        latency: The student's time for one forward pass, in the unit of the teacher's, above 0.
        teacher_latency: The teacher's time, above 0.

    Raises:
        ValueError: for a latency that is not above 0.
    """
    # NaN is not above 0 either.
    if not (latency > 0 and teacher_latency > 0):
        raise ValueError(f"both latencies must be above 0, but they are {latency} and {teacher_latency}")
    relative_latency = latency / (TARGET_SHARE * teacher_latency)
    return float((1 - loss) * relative_latency**EXPONENT)
