"""A shop whose work is done by jobs."""
