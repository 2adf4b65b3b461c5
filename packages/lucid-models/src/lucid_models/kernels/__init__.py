"""Fused accelerator kernels; the torch expressions elsewhere define what they compute."""
