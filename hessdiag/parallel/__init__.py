"""Measurements shared among processes, and shown while they run."""
