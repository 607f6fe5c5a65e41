"""Turning a function into a command: groups of options, help without type names, handling of Ctrl-C."""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
NOTHING_LEFT = "Nothing was written."


def _without_types(params: list[Any]) -> list[Any]:
    """Remove the types from the help: a flag has no value, and all other parameters name theirs."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, and ``--help``."""
        return _without_types(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands whose help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, and ``--help``."""
        return _without_types(super().get_params(ctx))


def command(app: typer.Typer, stopped: str = NOTHING_LEFT) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command.

    A parameter whose type is a dataclass of options is replaced by all of its fields: each field becomes
    an option of the
    command, and the function gets the dataclass. A default of such a parameter gives the defaults of the options.

    Args:
        app: The application to add the command to.
        stopped: The message after Ctrl-C, with the options' values by name, for instance "... {out}".
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        groups, parameters = _expand(function)

        @functools.wraps(function)
        def run(**values: Any) -> None:
            given = dict(values)
            for name, (kind, names) in groups.items():
                values[name] = kind(**{field: values.pop(field) for field in names})
            try:
                function(**values)
            except KeyboardInterrupt:
                said = f"Stopped. {stopped.format(**given)}"
                Console(stderr=True, highlight=False).print(said, soft_wrap=True, markup=False)
                raise typer.Exit(INTERRUPTED) from None

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = _unwrapped(function.__doc__ or "")
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(cls=Command)(run)
        return run

    return decorate


def _unwrapped(text: str) -> str:
    """Return a docstring with one line per paragraph, because the help wraps lines itself; "\\b" preserves lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.splitlines()) for part in paragraphs)


def _expand(function: Callable[..., None]) -> tuple[dict[str, tuple[type, list[str]]], list[inspect.Parameter]]:
    """Return the groups of a function's parameters with the names of their fields, and the parameters of the
    command."""
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters = []
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(_parameter(name, kind, parameter.default))
            continue
        assert isinstance(kind, type)
        groups[name] = kind, [field.name for field in fields(kind)]
        types = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            if parameter.default is not inspect.Parameter.empty:
                default = getattr(parameter.default, field.name)
            option = _in_panel(types[field.name], getattr(kind, "panel", None))
            parameters.append(_parameter(field.name, option, default))
    return groups, parameters


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """Put an option into the help panel of its group."""
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
