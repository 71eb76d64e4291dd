"""Initialisations side by side: measured, kept, judged, printed."""
