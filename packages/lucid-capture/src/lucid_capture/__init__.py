"""Guarded replay of fixed-shape work for any training loop."""
