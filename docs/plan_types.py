"""`make generated`: write node/plan_types.py, the plan's types, from its model."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from container_engine.base.model import Model  # noqa: E402
from container_engine.edf.model import Device, Mount, Origin, Text, Variable  # noqa: E402 - found through sys.path
from container_engine.plan import model  # noqa: E402

# the document itself and its settings become the fields of a NodePlan
_PARTS = (
    *(model.Image, Mount, Device, model.EnvEntry, model.StartupLine, model.HookUse),
    *(model.Run, model.KeptContainer),
)
TARGET = ROOT / "container_engine/node/plan_types.py"
_HEAD = '''"""Types of a plan's parts, for the type checker alone: never imported by a launch.

Generated from plan/model.py by `make generated`. All keys are optional here: a
plan is its user's until it arrives.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

_From = TypedDict("_From", {"from": str}, total=False)

'''
_FROM = "_From"


def render() -> str:
    """Return the module's text: a TypedDict for each part of the plan, its own parts first."""
    done: dict[str, str] = {}
    _add(Variable, done)
    done["Text"] = "Text = str | Sequence[str | Variable]\n"
    for kind in _PARTS:
        _add(kind, done)
    return _HEAD + "\n" + "\n".join(done.values()).rstrip("\n") + "\n"


def _add(kind: type, done: dict[str, str]) -> None:
    if kind.__name__ in done:
        return
    above = [one for one in kind.__bases__ if _described(one)]
    for one in above:
        _add(one, done)
    keys = {_key(name, hint): _text(hint, done) for name, hint in _described(kind).items()}
    bases = [one.__name__ for one in above]
    if keys.pop("from", ""):  # a keyword of Python
        bases.append(_FROM)
    lines = "".join(f"    {key}: {text}\n" for key, text in keys.items()) or "    pass\n"
    head = f"class {kind.__name__}({', '.join(bases) or 'TypedDict'}, total=False):\n"
    done[kind.__name__] = f"{head}{lines}\n"


def _described(kind: type) -> dict[str, object]:
    """Return the types of the fields that the class itself has."""
    hints = get_type_hints(kind, None, {**vars(model), "Text": Text}, include_extras=True)
    own = inspect.get_annotations(kind)
    return {name: hints[name] for name in own if get_origin(hints.get(name)) is Annotated}


def _key(name: str, hint: object) -> str:
    """Return the key of a field in the document."""
    return next((info.alias for info in get_args(hint)[1:] if getattr(info, "alias", "")), name)


def _text(hint: object, done: dict[str, str]) -> str:  # noqa: PLR0911  # a case for each form
    """Return a type as the generated module writes it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint == Text:
        return "Text"
    if origin is Annotated:
        return _text(arguments[0], done)
    if origin is Literal:
        return f"Literal{list(arguments)!r}"
    if origin in {Union, types.UnionType}:
        return " | ".join(_text(part, done) for part in arguments)
    if origin is tuple:
        return f"Sequence[{_text(arguments[0], done)}]"
    if origin in {dict, Mapping}:
        return f"Mapping[{', '.join(_text(part, done) for part in arguments)}]"
    if hint is types.NoneType:
        return "None"
    if hint is Origin:
        return "str"
    assert isinstance(hint, type), hint
    if issubclass(hint, Model) or is_dataclass(hint):
        _add(hint, done)
    return hint.__name__


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
