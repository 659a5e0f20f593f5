"""A plan as the user sees it."""

import json
import re

from container_engine.base.secrecy import Secrecy
from container_engine.edf.model import Mount
from container_engine.plan.model import HookUse, LaunchPlan
from container_engine.printing.plan import show
from tests.unit.plan.edfs import HERE, built, edf, entry, variable

EXPECTED = """\
environment  e                                     # /e.toml
image        /i.sqsh                               # /e.toml:1
image says   1 variable, workdir /, no entrypoint  # /i.sqsh.json
workdir      /                                     # default
file system  writable                              # default
entrypoint   none                                  # default
mount        /a on /b (ro,nodev)                   # /e.toml:3
             content of /d.sqsh on /d              # /e.toml:3
             tmpfs on /t (size=1g)                 # /e.toml:3
env          unset A                               # /e.toml:3
             B=x${SLURM_JOB_ID:-none}              # /e.toml:3
             C=two\\nlines                          # /e.toml:3
"""


def shown(plan: LaunchPlan, secrecy: Secrecy | None = None) -> str:
    return show(json.loads(plan.to_json()), secrecy or Secrecy())


def test_a_plan_reads_as_a_table_with_reasons() -> None:
    outcome = built(
        edf(
            mounts=(
                Mount("bind", "/a", "/b", ("ro", "nodev"), HERE),
                Mount("squashfs", "/d.sqsh", "/d", (), HERE),
                Mount("tmpfs", "tmpfs", "/t", ("size=1g",), HERE),
            ),
            env=(
                entry("A", ""),
                entry("B", "x", variable("SLURM_JOB_ID", ":-", "none")),
                entry("C", "two\nlines"),
            ),
        )
    )
    assert outcome.plan is not None
    assert shown(outcome.plan) == EXPECTED


def test_variables_that_an_image_must_not_set_are_named() -> None:
    outcome = built(edf())
    assert outcome.plan is not None
    image = outcome.plan.image.model_copy(update={"left_out": ("CE_INHERIT", "EDF_PATH")})
    text = shown(outcome.plan.model_copy(update={"image": image}))
    why = "read by the engine or by Slurm: only you and environments set them"
    assert re.search(f"^ +left out: CE_INHERIT, EDF_PATH +# {why}$", text, re.MULTILINE), text


def test_secrets_are_not_shown_but_where_they_come_from_is() -> None:
    outcome = built(edf(env=(entry("HF_TOKEN", "very secret"), entry("PLAIN", "seen"))))
    assert outcome.plan is not None
    assert "HF_TOKEN=(hidden)" in shown(outcome.plan)
    assert "very secret" not in shown(outcome.plan)
    assert "PLAIN=seen" in shown(outcome.plan)
    assert "HF_TOKEN=very secret" in shown(outcome.plan, Secrecy(shows=True))


def hook(name: str, *when: str) -> HookUse:
    about = {"name": name, "release": "1", "file": f"/{name}/hook.toml", "parameters": {}}
    why = {"reason": "automatic", "from": f"/{name}/hook.toml", "automatic_when": when}
    return HookUse.of({**about, **why})


def test_hooks_that_most_steps_do_not_use_are_not_listed_as_if_they_applied() -> None:
    outcome = built(edf())
    assert outcome.plan is not None
    hooks = (hook("slurm", "CE_BATCH_SCRIPT"), hook("always"), hook("pmix", "CE_PMIX_DIR"))
    text = shown(outcome.plan.model_copy(update={"hooks": hooks}))
    lines = [" ".join(line.split()) for line in text.splitlines() if "automatic" in line]
    assert lines == [
        "hook always 1 # automatic, /always/hook.toml",
        "only in some steps: pmix, slurm (ce hooks show NAME says which) # automatic",
    ]
