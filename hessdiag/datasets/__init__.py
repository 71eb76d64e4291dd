"""Published data sets: found by name, downloaded once, read."""
