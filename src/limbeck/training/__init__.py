"""Training: the module, the trainer, stages and the run record."""
