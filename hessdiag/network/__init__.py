"""What a network is made of, and watching it run."""
