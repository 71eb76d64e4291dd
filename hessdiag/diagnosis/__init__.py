"""Measuring a network: moments and curvature beside the theory."""
