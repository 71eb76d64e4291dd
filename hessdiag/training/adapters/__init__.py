"""The monitor as a callback of training libraries, which are imported when a callback is made."""
