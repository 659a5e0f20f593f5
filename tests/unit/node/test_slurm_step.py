"""This node's name, from a Slurm host list."""

import pytest

from container_engine.node.slurm_step import before_tasks, complete, contract, expand


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1-2,08,11]", ["n1", "n2", "n08", "n11"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("r[1-2]c[0-1]", ["r1c0", "r1c1", "r2c0", "r2c1"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ],
)
def test_a_host_list_is_expanded_in_its_order(pattern: str, names: list[str]) -> None:
    assert list(expand(pattern)) == names


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        ([f"n{number}" for number in range(1, 1001)], "n[1-1000]"),
        (["n10", "n2", "n1", "n9", "n4"], "n[1-2,4,9-10]"),
        (["r1c08", "r1c09", "r1c10", "r2c1"], "r1c[08-10],r2c1"),
        (["n09", "n9", "n10"], "n[9,09-10]"),
        (["login", "n1", "n"], "login,n1,n"),
        ([], ""),
    ],
)
def test_names_are_contracted_to_a_host_list(names: list[str], pattern: str) -> None:
    assert contract(names) == pattern
    assert sorted(expand(pattern)) == (sorted(names) or [""])


def test_the_name_is_that_at_the_nodes_place() -> None:
    node = {"SLURM_STEP_NODELIST": "n[1-3],x", "SLURM_NODEID": "3"}
    assert complete(node)["SLURMD_NODENAME"] == "x"
    assert "SLURMD_NODENAME" not in node


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"SLURM_STEP_NODELIST": "n1"},
        {"SLURM_NODEID": "0"},
        {"SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "1"},
        {"SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "x"},
    ],
)
def test_an_unknown_node_name_is_not_invented(node: dict[str, str]) -> None:
    assert complete(node) == node


def test_the_name_of_the_node_of_a_batch_script_is_not_that_of_its_steps() -> None:
    node = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NODEID": "1", "SLURMD_NODENAME": "n1"}
    assert complete(node)["SLURMD_NODENAME"] == "n2"


def test_what_each_task_has_is_not_that_of_the_batch_script() -> None:
    node = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NODEID": "1", "SLURM_PROCID": "0"}
    known = before_tasks(node | {"SLURM_LOCALID": "0", "SLURM_TASK_PID": "9", "SLURM_GTIDS": "0"})
    assert set(known) == {"SLURM_STEP_NODELIST", "SLURM_NODEID", "SLURMD_NODENAME"}


def test_what_slurm_said_stays_where_nothing_else_is_known() -> None:
    node = {"SLURMD_NODENAME": "mine", "SLURM_NODEID": "0"}
    assert complete(node) == node


def test_a_huge_list_is_not_expanded_beyond_the_place() -> None:
    node = {"SLURM_STEP_NODELIST": "n[0-999999999]", "SLURM_NODEID": "5"}
    assert complete(node)["SLURMD_NODENAME"] == "n5"
