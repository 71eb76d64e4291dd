"""The one exception that users meet."""


class HessdiagError(ValueError):
    """Something that was passed cannot be used; the message says what, and what to type instead."""


class OneRankError(HessdiagError):
    """What one process of several met, of which the others know nothing."""


class RankGoneError(OneRankError):
    """Another process of the run ended without a word."""
