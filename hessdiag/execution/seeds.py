"""Moved to `hessdiag.data.seeds`."""

from hessdiag.data.seeds import gaussians, stream

__all__ = ["gaussians", "stream"]
