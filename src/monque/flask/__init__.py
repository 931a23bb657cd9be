"""Monque in a Flask application: an extension, with `flask monque` and the dashboard."""

try:
    import flask as _flask  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    if error.name != "flask":
        raise
    raise ModuleNotFoundError(
        "monque.flask needs Flask; install it with: pip install 'pymonque[flask]'", name="flask"
    ) from error

from monque.flask.extension import FlaskMonque
from monque.flask.jobs import FlaskJob

__all__ = ["FlaskJob", "FlaskMonque"]
