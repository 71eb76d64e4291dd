"""Batches of examples, and streams of them."""
