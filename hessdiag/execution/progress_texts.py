"""How progress reads, in a terminal and in a notebook alike."""

WIDTH = 60  # characters of a step's name
PATIENCE = 1.0  # seconds before what nobody asked for appears: short measurements stay silent


def clock(seconds: float) -> str:
    """A time as a clock shows it.

    >>> clock(5.4), clock(3725)
    ('0:05', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
