"""What each operation does to second moments, forward and backward: one small function an operation, one table."""

from hessdiag.calculus.rules.registry import BY_TARGET, LINEAR, RULES, Rule

__all__ = ["BY_TARGET", "LINEAR", "RULES", "Rule"]
