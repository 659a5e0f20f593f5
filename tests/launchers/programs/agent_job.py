"""mini-swe-agent, unchanged, with a model of its own that needs no network, in our containers."""

import json
import sys

from ce_agent import CeEnvironment
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output

COMMANDS = (
    "echo kept >/tmp/file; pwd; touch x",
    "cat /tmp/file; ls /sys/class/net 2>&1; ls -A /sys; env | grep -c SECRET; touch /etc/x",
    "sleep 60",
    "python3 -c 'x = bytearray(900 << 20); print(len(x))'",
    "cat /tmp/file",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done",
)
environment = CeEnvironment(environment=sys.argv[1], timeout=5)
outputs = [make_output("next", [{"command": command}], cost=0) for command in COMMANDS]
agent = DefaultAgent(
    DeterministicModel(outputs=outputs, cost_per_call=0),
    environment,
    system_template="You are {{system}}.",
    instance_template="{{task}}",
)
result = agent.run("try the sandbox")
environment.cleanup()
seen = [one["extra"] for one in agent.messages if "returncode" in one.get("extra", {})]
try:
    refused = f"started: {CeEnvironment(environment='nosuch').config}"
except RuntimeError as error:
    refused = str(error)
print("RESULT", json.dumps({"result": result, "seen": seen, "refused": refused}))
