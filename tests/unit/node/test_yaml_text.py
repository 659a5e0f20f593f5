"""YAML of CDI files is read as by other readers; what is not understood is refused by line."""

import json

import pytest

from container_engine.node.devices.yaml_text import YamlError, parse

# as nvidia-ctk writes it
WRITTEN = """\
---
cdiVersion: 0.6.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl  # for all
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/bin/nvidia-smi
    hostPath: /usr/bin/nvidia-smi
    options: [ro, nosuid, "nodev", 'bind']
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      fileMode: 438
      major: 0xc3
  name: "0"
-
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}], additionalGids: [5]}
  name: '1'
kind: nvidia.com/gpu
"""
MEANT = {
    "cdiVersion": "0.6.0",
    "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": [
            {
                "args": [
                    "nvidia-cdi-hook",
                    "create-symlinks",
                    "--link",
                    "libcuda.so.1::/usr/lib/libcuda.so",
                ],
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
            }
        ],
        "mounts": [
            {
                "containerPath": "/usr/bin/nvidia-smi",
                "hostPath": "/usr/bin/nvidia-smi",
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
        ],
    },
    "devices": [
        {
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia0", "fileMode": 438, "major": 195}]
            },
            "name": "0",
        },
        {
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia1"}],
                "additionalGids": [5],
            },
            "name": "1",
        },
    ],
    "kind": "nvidia.com/gpu",
}


def test_what_the_usual_tools_write_is_understood() -> None:
    assert parse(WRITTEN) == MEANT


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_yaml_too_as_far_as_it_stands_on_one_line(indent: int | None) -> None:
    if indent is None:
        assert parse(json.dumps(MEANT)) == MEANT
    else:
        with pytest.raises(YamlError, match=r"^line 1: "):
            parse(json.dumps(MEANT, indent=indent))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1.0.0", "1.0.0"),
        ("a: 0.5", 0.5),
        ("a: -7", -7),
        ("a: 0o17", 15),
        ("a: TRUE", True),
        ("a: ~", None),
        ("a:", None),
        ("a: 'it''s'", "it's"),
        (r'a: "tab\tquote\"back\\é"', 'tab\tquote"back\\é'),
        ("a: x#y # comment", "x#y"),
        ("a: 'x # y'", "x # y"),
        ("a: b:c", "b:c"),
        ("a: a long\n  text", "a long text"),
        ('a: "a long\n  text"', "a long text"),
        ("a: []", []),
        ("a: {}", {}),
        ("a: [[1, 2], {b: c}]", [[1, 2], {"b": "c"}]),
        ("a:\n- - 1\n  - 2\n- - 3", [[1, 2], [3]]),
        ('"a": 1', 1),
    ],
)
def test_a_value_means_the_same_as_in_yaml(text: str, value: object) -> None:
    assert parse(text) == {"a": value}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &x 1", 1),
        ("a: *x", 1),
        ("a: !!str 1", 1),
        ("a: |\n  text", 2),
        ("a: 1\n\tb: 2", 2),
        ("a: 1\na: 2", 2),
        ("a: 'open", 1),
        ("a: [1", 1),
        ("a: 1\n  b: 2\n c: 3", 2),
        ("? a\n: b", 1),
        ("a: 'x\n\n  y'", 1),
        ("a: 1\n---\nb: 2", 2),
        ("- 1\nb: 2", 2),
        ('a: "\\q"', 1),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlError, match=f"^line {line}: "):
        parse(text)


def test_an_endless_nesting_is_refused() -> None:
    with pytest.raises(YamlError, match="nested too deeply"):
        parse("- " * 60 + "1")
    with pytest.raises(YamlError, match="nested too deeply"):
        parse("a: " + "[" * 5000)
