"""A stand-in for torch.distributed: the meeting of the ranks, over TCP."""

import os
import socket
import time

_PATIENCE_S = 60


def get_rank() -> int:
    return int(os.environ["RANK"])


def get_world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def init_process_group(_backend: str) -> None:
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if get_rank() == 0:
        _receive(place)
    else:
        _come(place)


def destroy_process_group() -> None:
    pass


def _receive(place: tuple[str, int]) -> None:
    others: list[socket.socket] = []
    with socket.create_server(place) as server:
        server.settimeout(_PATIENCE_S)
        while len(others) < get_world_size() - 1:
            others.append(server.accept()[0])
    ranks = {int(other.recv(16)) for other in others}
    assert ranks == set(range(1, get_world_size())), ranks
    for other in others:
        other.sendall(b"go")
        other.close()


def _come(place: tuple[str, int]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with socket.create_connection(place, timeout=_PATIENCE_S) as master:
                master.sendall(b"%d" % get_rank())
                assert master.recv(16) == b"go"
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
