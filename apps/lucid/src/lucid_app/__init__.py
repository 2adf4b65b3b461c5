"""The lucid command: train, score and run real-time object detectors."""
