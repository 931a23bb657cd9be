"""Draws the pictures of the dashboard in the docs: `make screenshots`. Two runs give the same files."""
