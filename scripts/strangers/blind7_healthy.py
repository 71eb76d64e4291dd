"""Healthy networks, a seventh set."""
