"""Computes: slots, programs, kernels, sampling, step clock, cost. The only folder that knows tensors."""
