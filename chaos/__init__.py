"""Breaks a fleet of real processes and a real replica set for a while, then checks what they wrote down."""
