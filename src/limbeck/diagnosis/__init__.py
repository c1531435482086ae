"""What works on this machine: packages, devices, kernels and folders, and a self-test; `limbeck doctor` shows it."""
