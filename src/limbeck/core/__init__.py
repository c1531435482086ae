"""What knows nothing of distillation, once each: files, folders, processes, registries, progress, the machine."""
