"""Code that the integrations of web frameworks share."""
