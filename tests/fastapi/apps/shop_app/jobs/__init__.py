"""Jobs, each module in its own way."""
