"""What the integrations of web frameworks share."""
