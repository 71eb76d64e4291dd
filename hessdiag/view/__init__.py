"""What results look like: figures and web pages of what was measured. Nothing is measured here."""
