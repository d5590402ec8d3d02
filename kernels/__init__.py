"""The arithmetic: kernels, each of which computes one canonical row program."""
