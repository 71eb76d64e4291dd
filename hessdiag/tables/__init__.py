"""Results as text tables."""
