"""Benchmarks: what losses, training steps and models cost on this machine, as rows for a CSV or JSON file."""
