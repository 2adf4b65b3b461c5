"""Trains lucid detectors: configuration, loop, checkpoints, exact resume."""
