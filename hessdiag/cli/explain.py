"""`hessdiag explain`: what a rule measures, where its threshold stands, and why."""

from typing import Annotated

import typer

from hessdiag.arguments import did_you_mean
from hessdiag.errors import HessdiagError

Rule = Annotated[str, typer.Argument(metavar="[RULE]", help="such as HD104; all rules in a line each without one")]


def explain(rule: Rule = "") -> None:
    """Explain a rule that a finding names."""
    from hessdiag.diagnosis import rules as catalogue
    from hessdiag.results.text_table import plain_text, text_width

    if not rule:
        print(plain_text([catalogue.overview()]))
        return
    if (name := f"HD{rule}" if rule.isdigit() else rule.upper()) not in catalogue.CATALOGUE:
        hint = did_you_mean(name, list(catalogue.CATALOGUE))
        raise HessdiagError(f"there is no rule {rule!r}: {hint or 'hessdiag explain lists all'}")
    print(catalogue.explain(name, width=min(catalogue.WIDTH, text_width())))
