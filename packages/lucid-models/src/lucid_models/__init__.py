"""Real-time detectors: network, assignment, losses, decoding, prediction."""
