"""Teachings: who says what of a batch."""
