"""What users declare: handlers by name, and what their signatures and payload types say."""
