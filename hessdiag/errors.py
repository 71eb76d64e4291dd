"""The one exception that users meet, and what models, losses and layers raise that cannot use what they are given."""

SIMILARITIES = "the outputs of an example have a number for each other one, as similarities have: pass"
REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError)


class HessdiagError(ValueError):
    """Something that was passed cannot be used; the message says what, and what to type instead."""


class CoupledError(HessdiagError):
    """Examples meet in the model or in its loss: none has outputs, or a loss, of its own."""
