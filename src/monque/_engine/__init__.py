"""The work between `start()` and `stop()`."""
