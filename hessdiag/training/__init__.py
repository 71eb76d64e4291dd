"""Training of many networks in one program."""
