"""An application whose jobs cannot be registered."""
