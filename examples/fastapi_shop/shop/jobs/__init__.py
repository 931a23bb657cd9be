"""All jobs of the shop; `setup_monque(discover=...)` finds them."""
