"""Scores of predictions against ground truth."""
