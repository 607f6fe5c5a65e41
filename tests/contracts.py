"""A contract for import-linter: no module imports a private module of another package."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


def package_of(module: str) -> str:
    """The package of a module, its first two parts: ``tangentlab.store`` for ``tangentlab.store._array``."""
    return ".".join(module.split(".")[:2])


def is_private(module: str) -> bool:
    """Whether a module is inside a package and private there.

    Modules directly below the root, such as ``tangentlab._errors``, are in no package: all packages share them.
    """
    return any(part.startswith("_") for part in module.split(".")[2:])


class FacesContract(Contract):
    """No module imports a private module of another package; ``internal`` modules are there for that.

    Imports inside functions and for type checking count. There is nothing to configure: a new package is covered.
    """

    type_name = "faces"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the imports that break the contract."""
        found: list[dict[str, Any]] = []
        for imported in sorted(filter(is_private, graph.modules)):
            for importer in sorted(graph.find_modules_that_directly_import(imported)):
                if package_of(importer) != package_of(imported):
                    found += graph.get_import_details(importer=importer, imported=imported)
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print them, one per line."""
        for link in check.metadata["found"]:
            output.print_error(f"{link['importer']}, line {link['line_number']}: {link['line_contents'].strip()}")
        output.new_line()
        output.print_error(
            "A module with an underscore belongs to its package alone. Import from the package, or from its module "
            "`internal`, or move what several packages need to a module directly below the root.",
            bold=False,
        )
