"""From what the user typed to a network, its weights, data and initialisation."""
