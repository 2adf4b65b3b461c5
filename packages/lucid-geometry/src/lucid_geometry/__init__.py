"""Exact upright and rotated box geometry in pure torch."""
