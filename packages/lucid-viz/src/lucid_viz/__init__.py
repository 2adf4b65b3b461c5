"""Curves, overlays and sheets for lucid detectors."""
