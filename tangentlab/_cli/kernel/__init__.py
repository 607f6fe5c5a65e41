"""``tangentlab kernel``: kernels on disk."""

import typer

from tangentlab._cli._command import CommandGroup
from tangentlab._cli.kernel import cluster, compute, copies, plan, state

app = typer.Typer(
    help="Compute, resume, verify and share kernels on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=CommandGroup,
)
for part in (compute, cluster, state, copies, plan):
    app.registered_commands += part.app.registered_commands
