"""The way into a dashboard, and the rights of those who are in."""
