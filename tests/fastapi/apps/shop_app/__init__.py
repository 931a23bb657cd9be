"""An application that tests serve with uvicorn: its jobs stand in packages and are discovered."""
