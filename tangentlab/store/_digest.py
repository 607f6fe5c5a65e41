"""Digests of Python values and code that are the same in every process, independent of memory addresses.

There are three kinds of code. That of Python, PyTorch and NumPy is identified by its name, since their versions are in
the manifest. That of other installed packages is identified by its bytecode. The user's own is identified by its
bytecode and everything it refers to, recursively: closures, defaults, functions and values at the top of its module.
"""

import dis
import functools
import hashlib
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab._layouts import parts_of

Origin = Literal["language", "library", "user"]

_LANGUAGE = ("torch", "numpy", "builtins")
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_HAS_DOCSTRING = 0x4000000
_DEEPEST = 60
_MOST = 200_000
"""The number of values that one digest visits: an attribute may refer to a whole program."""
UNIMPORTANT = frozenset(
    "__doc__ __module__ __qualname__ __dict__ __weakref__ __annotations__ __firstlineno__ __static_attributes__ "
    "__slotnames__ __abstractmethods__ __parameters__ __orig_bases__ __annotations_cache__ __annotate_func__ "
    "_abc_impl _backward_cls".split()
)
"""Members of a class that are documentation, or bookkeeping of Python and PyTorch."""


def sha(*parts: str | bytes | memoryview) -> str:
    """Hash parts into a short digest; different splits into parts give different digests."""
    state = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        state.update(f"{memoryview(content).nbytes}:".encode())
        state.update(content)
    return state.hexdigest()[:16]


@functools.cache
def origin(module: str) -> Origin:
    """Return whether a module belongs to the language, to an installed library, or to the user."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    folders = Path(file).parents if file else []
    if top in _LANGUAGE or (top in sys.stdlib_module_names and (not file or _STANDARD in folders)):
        return "language"
    installed = any(folder.name in _INSTALLED for folder in folders)
    return "library" if installed or top == "tangentlab" else "user"


class Digest:
    """The computation of digests of values, and of the names that the code it visits mentions.

    Args:
        modules: Modules of the network by identity. They have digests of their own and are represented by name.
    """

    def __init__(self, modules: Mapping[int, str] | None = None) -> None:
        self.names: set[str] = set()
        """Attributes, functions and strings that may be names, in all visited code."""
        self._modules = dict(modules or {})
        self._done: dict[int, tuple[Any, str]] = {}
        self._path: set[int] = set()

    def __call__(self, value: Any) -> str:
        """Compute the digest of any value."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return sha(type(value).__name__, repr(value))
        key = id(value)
        if key in self._done:
            return self._done[key][1]
        if key in self._path:
            return "again"
        if len(self._path) > _DEEPEST or len(self._done) > _MOST:
            return sha("deep", _name(type(value)))
        self._path.add(key)
        try:
            result = self._of(value)
        except Exception:  # objects may refuse anything; then only their class is known
            result = sha("closed", _name(type(value)))
        finally:
            self._path.discard(key)
        self._done[key] = value, result  # kept alive, since another value might get its address
        return result

    def _of(self, value: Any) -> str:
        if id(value) in self._modules:
            return sha("module", self._modules[id(value)])
        if isinstance(value, Tensor):
            return _tensor(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return sha("array", f"{value.shape} {value.dtype}", np.ascontiguousarray(value).data.cast("B"))
        if isinstance(value, (torch.device, torch.Generator)):  # a place, not a value
            return sha(type(value).__name__)
        if isinstance(value, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
            return self.of_script(value)
        if isinstance(value, Mapping):
            return sha(_name(type(value)), *(self(part) for pair in value.items() for part in pair))
        if isinstance(value, (set, frozenset)):
            return sha("set", *sorted(map(self, value)))
        if isinstance(value, (list, tuple)):
            return sha(_name(type(value)), *map(self, value))
        if isinstance(value, type):
            return self.of_class(value)
        if isinstance(value, FunctionType):
            return self.of_function(value)
        if isinstance(value, MethodType):
            return sha("method", self(value.__func__), self(value.__self__))
        if isinstance(value, ModuleType):
            return sha("python module", value.__name__)
        if isinstance(value, (staticmethod, classmethod)):
            return sha(type(value).__name__, self(value.__func__))
        if isinstance(value, property):
            return sha("property", *map(self, (value.fget, value.fset, value.fdel)))
        if isinstance(value, functools.partial):
            return sha("partial", *map(self, (value.func, value.args, value.keywords)))
        if wrapped := getattr(value, "__wrapped__", None):  # functools.cache and similar wrappers
            return sha(_name(type(value)), self(wrapped))
        if isinstance(value, BuiltinFunctionType) or inspect.isroutine(value):
            return sha("built in", _name(value))
        return self._of_object(value)

    def _of_object(self, value: Any) -> str:
        """Digest any other object: its class, and what it would be pickled as."""
        kind = self(type(value))
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return sha("object", kind, reduced)
        make, arguments, state = (*reduced, None)[:3]
        own = isinstance(value, nn.Module) or origin(type(value).__module__) == "user"
        if isinstance(state, dict) and not own:
            # Private state of packages is bookkeeping: file names, identifiers, times.
            state = {name: part for name, part in state.items() if not str(name).startswith("_")}
        items = [list(more) for more in reduced[3:5] if more is not None]
        return sha("object", kind, self(make), self(arguments), self(state), self(items))

    def of_class(self, kind: type) -> str:
        """Digest a class: its name, its bases and all its members."""
        if origin(kind.__module__) == "language":
            return sha("class", _name(kind))
        members = [f"{name} {self(member)}" for name, member in sorted(vars(kind).items()) if name not in UNIMPORTANT]
        return sha("class", kind.__name__, *map(self, kind.__bases__), *members)

    def of_function(self, function: FunctionType) -> str:
        """Digest a function written in Python.

        Its bytecode has no comments, lines or variable names, so that these may change.
        """
        home = str(function.__globals__.get("__name__", ""))
        whose = origin(home)
        code = function.__code__
        names = sorted(_names(code))
        self.names.update(names if whose != "language" else ())
        cells = [_content(cell) for cell in function.__closure__ or ()]
        held = [self(part) for part in (cells, function.__defaults__, function.__kwdefaults__)]
        if whose == "language":  # a decorator of PyTorch holds the user's function
            return sha("function", f"{home}.{code.co_qualname}", *held)
        if whose == "user":
            held += [f"{name} {part}" for name, part in self._globals(function.__globals__, names)]
        return sha("function", _bytecode(code), *held)

    def of_script(self, script: Any) -> str:
        """Digest what PyTorch compiled from Python: its graphs, without line and class numbers, and what they read."""
        function = isinstance(script, torch.jit.ScriptFunction)
        graphs = str(script.graph) if function else script._c.dump_to_str(True, False, False)
        names = sorted({*re.findall(r'GetAttr\[name="(\w+)"\]', graphs)} & {*dir(script)})
        read = [f"{name} {self(getattr(script, name))}" for name in names]
        return sha("script", re.sub(r" # .*|\.?___torch_mangle_\d+| at 0x[0-9a-f]+", "", graphs), *read)

    def _globals(self, space: Mapping[str, Any], names: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Digest what the names in a function's code refer to at the top level of its module."""
        for name in names:
            if name in space:
                value = space[name]
                yield name, self(value)
                if isinstance(value, ModuleType) and origin(value.__name__) == "user":
                    inside = vars(value)
                    yield from ((f"{name}.{part}", self(inside[part])) for part in names if part in inside)


def _tensor(value: Tensor) -> str:
    if value.device.type == "meta":
        return sha("tensor", f"{tuple(value.shape)} {value.dtype} {value.layout}")
    if value.layout is not torch.strided or value.is_nested:
        shape = None if value.is_nested else tuple(value.shape)  # a nested one's has a number that counts calls
        return sha("tensor", f"{value.layout} {shape} {value.requires_grad}", *map(_tensor, parts_of(value)))
    plain = value.detach().cpu().contiguous()
    if plain.is_quantized:
        plain = plain.int_repr()
    raw = plain.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().data
    return sha("tensor", f"{tuple(value.shape)} {value.dtype} {value.requires_grad}", raw)


def _name(value: Any) -> str:
    """Name a class or function: with its module if that is installed, without it if it is a user's file."""
    home, name = str(getattr(value, "__module__", "")), getattr(value, "__qualname__", type(value).__name__)
    return str(value.__name__) if origin(home) == "user" and hasattr(value, "__name__") else f"{home}.{name}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _names(code: CodeType) -> set[str]:
    """List all names that code mentions, and strings that may be names, as in ``getattr(self, "layer")``."""
    found = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            found.add(constant)
    return found


def _bytecode(code: CodeType) -> str:
    """Digest what code does: constants by value, without the docstring, which no instruction loads."""
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOCSTRING
    steps = []
    for step in dis.get_instructions(code):
        if step.opcode in dis.hasconst:
            steps.append(f"{step.opname} {_constant(step.argval)}")
        else:
            steps.append(f"{step.opname} {step.argval if step.opcode in dis.hasname else step.arg}")
    return sha(repr((counts, arguments, len(code.co_freevars), len(code.co_cellvars))), code.co_exceptiontable, *steps)


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {[_constant(part) for part in value]}"
    return f"{type(value).__name__} {value!r}"
