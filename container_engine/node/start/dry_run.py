"""Find what hooks would do to an image on this node, as a launch does but without a container."""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.node import protocol
from container_engine.node.container import environment as env
from container_engine.node.container.checks import check_image
from container_engine.node.container.description import Paths, person_of_process
from container_engine.node.container.guard import MAX_PACKET, GuardDescriptors, start_guard
from container_engine.node.container.specification import encode, operations
from container_engine.node.hooks.run import HooksOnNode
from container_engine.node.plan_json import to_json
from container_engine.node.report.guard_failure import explain
from container_engine.node.start.container import directories, parts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.node_plan import NodePlan

_END = "end"


def find(plan: NodePlan, node: Mapping[str, str], libexec: str) -> HooksOnNode:
    """Return the hooks, with their decisions on libraries and their warnings. Raise LaunchError.

    The image is mounted in a session that ends with this call.
    """
    paths = Paths(session=f"{libexec}/session", libexec=libexec)
    edf = env.edf_settings(plan.env, node)
    unmet: list[LaunchError] = []
    images = plan.image_paths
    for path in images:
        check_image(path)
    container = parts_of(plan, node, unmet)
    hooks = HooksOnNode(plan, node, edf, libexec, unmet, explain=True)
    person = person_of_process()
    places = directories(plan, hooks.settings, node, person.home)
    container = hooks.join(container, paths).but(directories=places)
    steps = operations(
        paths,
        images,
        container,
        env.for_container(plan.image_env, hooks.settings),
        person,
        hooks.operations(paths),
    )
    without_container = steps[:-2]
    steps = [*without_container, ("note", [to_json({_END: True})])]
    control = start_guard(libexec, GuardDescriptors(os.pidfd_open(os.getpid())), encode(steps))
    control.settimeout(plan.start_timeout_s)
    try:
        while (note := _note(control.recv(MAX_PACKET))) != to_json({_END: True}):
            hooks.take_note(note)
    finally:
        control.close()
    return hooks


def _note(packet: bytes) -> str:
    text = packet[1:].decode("utf-8", "surrogateescape")
    if packet.startswith(protocol.CE_REPORT_NOTE.encode()):
        return text
    raise explain(text) if packet else LaunchError("the session ended", see="launcher-ended")
