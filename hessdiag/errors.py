"""The one exception that users meet."""


class HessdiagError(ValueError):
    """Something that was passed cannot be used; the message says what, and what to type instead."""


class CoupledError(HessdiagError):
    """The loss compares the examples of a batch: no example has a loss of its own."""
