"""Hyperparameters as YAML, each value with its source."""
