"""A report as one HTML file that needs nothing else: verdict, table, figures, definitions and the data itself."""

from hessdiag.html.page import render

__all__ = ["render"]
