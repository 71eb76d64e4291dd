"""Differentiating a network, one block at a time."""
