"""How long work is carried out: unit by unit, over ranks, within memory, and resumed after a kill."""

from hessdiag.execution.work import Work

__all__ = ["Work"]
