"""Networks as practitioners write them, as their authors left them: `scripts/strangers/practice.py` runs them."""
