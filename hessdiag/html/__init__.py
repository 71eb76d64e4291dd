"""A report as one HTML file that needs nothing else: verdict, table, figures, definitions and the data itself."""

from hessdiag.html.report_page import render

__all__ = ["render"]
