"""Fused kernels for accelerators and processors; the torch expressions elsewhere define what they compute."""
