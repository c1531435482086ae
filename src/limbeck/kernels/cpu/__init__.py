"""Kernels in C for CPUs, each with its front in Python; compiled at first use where a C compiler is found."""
