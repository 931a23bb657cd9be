"""What goes on between `start()` and `stop()`."""
