"""What tests of several rooms share, one subject a file."""
