"""Handlers that users declare by name, and the meaning of their signatures and payload types."""
