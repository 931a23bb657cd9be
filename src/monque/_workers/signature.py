"""Checks of a handler's signature: it takes one job, whose annotation names the payload type."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, FunctionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from monque._values.errors import ConfigurationError


def payload_type(handler: Callable[..., Any], generic: type) -> Any:
    """The T of a handler whose argument is annotated `Job[T]`, else `Any`; *generic* is `Job`.

    Raises:
        ConfigurationError: The handler cannot be called with the job alone, calling it would run nothing
            of it, or a name in its annotation is unknown.
    """
    require_handler(handler)
    try:
        annotation = _annotation(handler)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ConfigurationError(
            f"the annotation of handler {name_of(handler)} cannot be resolved ({error}); import or define "
            "its types before the handler is registered, and not for type checkers only"
        ) from error
    annotation = getattr(annotation, "__value__", annotation)  # type EmailJob = Job[Email]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation)[0] if get_origin(annotation) is generic else Any


def returned_type(handler: Callable[..., Any]) -> Any:
    """The annotation of what a handler returns; `Any` if there is none that can be resolved."""
    try:
        return _resolved(handler, lambda signature: signature.return_annotation)
    except (NameError, AttributeError, TypeError, ValueError, SyntaxError):
        return Any


def made_by(step: Callable[..., Any]) -> Any:
    """The type of what the function of a step returns; a class makes its own."""
    return step if isinstance(step, type) else returned_type(step)


def argument_type(function: Callable[..., Any]) -> Any:
    """The annotation of a function's first argument; `Any` if there is none that can be resolved."""
    try:
        return _annotation(function)
    except (NameError, AttributeError, TypeError, ValueError, SyntaxError):
        return Any


def require_handler(handler: Callable[..., Any]) -> None:
    """Refuse generator functions, and what cannot be called with the job alone."""
    if is_generator_function(handler):
        raise ConfigurationError(
            f"{name_of(handler)} contains a yield, so calling it would run nothing of it; remove the yield, "
            "or register a function that iterates over it"
        )
    try:
        inspect.signature(handler, follow_wrapped=False).bind("the job")
    except TypeError as error:
        raise ConfigurationError(
            f"{name_of(handler)} is no handler: a handler takes one argument, the job ({error})"
        ) from error
    except ValueError:
        pass  # some built-in functions have no signature, such as set().add


def refuse_generator(result: object) -> None:
    """Refuse what a handler returned if it is a generator, which a decorator can hide until then."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            "the handler returned a generator, and nothing of it has run; let the handler iterate over it"
        )


def is_generator_function(handler: Any) -> bool:
    """Return whether calling it makes a generator; a decorator that runs a generator function is fine."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = handler if inspect.isroutine(handler) else getattr(type(handler), "__call__", None)  # noqa: B004
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether calling it makes a coroutine, so that it runs on the event loop and needs no thread."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def name_of(handler: Callable[..., Any]) -> str:
    """Return the name of a handler for messages."""
    return getattr(handler, "__qualname__", repr(handler))


def _annotation(handler: Callable[..., Any]) -> Any:
    """The annotation of the parameter that takes the job, with its names resolved."""
    return _resolved(
        handler, lambda signature: next((each.annotation for each in signature.parameters.values()), Any)
    )


def _resolved(handler: Callable[..., Any], choose: Callable[[inspect.Signature], Any]) -> Any:
    """Return one annotation of a handler, resolved: the others may have names for type checkers only."""
    function = _function_behind(handler)
    if not isinstance(function, FunctionType):
        return Any

    def probe() -> None: ...

    probe.__annotations__ = {"it": choose(inspect.signature(handler))}
    return get_type_hints(probe, function.__globals__, _local_names(function), include_extras=True)["it"]


def _function_behind(handler: Any) -> Any:
    """The plain function in a decorated one, a partial, a bound method or a callable object."""
    handler = inspect.unwrap(handler)
    if isinstance(handler, functools.partial):
        return _function_behind(handler.func)
    if inspect.ismethod(handler):
        return _function_behind(handler.__func__)
    return handler if inspect.isroutine(handler) else _function_behind(type(handler).__call__)


def _local_names(function: FunctionType) -> dict[str, Any]:
    """The variables of the enclosing functions that still run, and those of the closure."""
    names: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe()
    while frame:
        encloses = function.__qualname__.startswith(f"{frame.f_code.co_qualname}.<locals>.")
        if encloses and frame.f_globals is function.__globals__:
            names = frame.f_locals | names
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet, such as the handler itself while it is decorated
            names[name] = cell.cell_contents
    return names
