"""Batches: token rows mixed, masked, grouped by length and padded, up to the tensors of one step."""
