"""Networks as their authors left them: `scripts/strangers/practice.py` runs them."""
