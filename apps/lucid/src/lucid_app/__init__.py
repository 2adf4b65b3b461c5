"""The ``lucid`` command: train, score and run real-time object detectors."""

from lucid_app.main import app, main

__all__ = ["app", "main"]
