"""Functions that users name: found, called, and their failures told in one line."""
