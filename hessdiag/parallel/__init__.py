"""Many trials: shared among processes, kept in a file, and shown while they run."""
