"""What knows nothing of distillation, once each: files, folders, processes, registries, progress, the machine."""

IGNORED_LABEL = -100
"""Label of a position that counts nothing, as in `torch.nn.functional.cross_entropy`."""
