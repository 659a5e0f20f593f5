"""`ce doctor` reads the site's files as a launch does."""

import json
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main
from container_engine.tools.doctor import all_checks

Capture = pytest.CaptureFixture[str]
CDI = {"cdiVersion": "0.6.0", "kind": "x.org/gpu", "devices": [{"name": "0", "containerEdits": {}}]}
HOOK = {
    "version": "1.0.0",
    "hook": {"path": "/bin/true"},
    "when": {"always": True},
    "stages": ["prestart"],
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a configuration with a directory of CDI files and one of OCI hooks."""
    for name in ("cdi", "oci"):
        (tmp_path / name).mkdir(mode=0o755)
    file = tmp_path / "config.toml"
    file.write_text(f'cdi_dirs = ["{tmp_path}/cdi"]\nhooks_dirs = ["{tmp_path}/oci"]\n')
    return file


def found(site: Path, capsys: Capture, check: str) -> dict[str, Any]:
    main(["--site", str(site), "doctor", "--node", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = (finding for finding in findings if finding["check"] == check)
    return dict(finding)


def test_the_name_of_a_node_is_refused_where_only_this_host_is_looked_at(capsys: Capture) -> None:
    assert main(["doctor", "--node", "n2"]) != 0
    assert capsys.readouterr().err == (
        "ce: error: doctor: 'n2': without --all-nodes, only this host is checked\n"
        "ce: hint: srun -w NODE ce doctor --node looks at another node;"
        " options are for --all-nodes\n"
    )


def test_files_that_can_be_read_are_counted(site: Path, capsys: Capture) -> None:
    (site.parent / "cdi/gpu.json").write_text(json.dumps(CDI))
    (site.parent / "oci/hook.json").write_text(json.dumps(HOOK))
    devices = found(site, capsys, "CDI devices")
    assert (devices["state"], devices["message"]) == ("ok", f"1 in {site.parent}/cdi")
    hooks = found(site, capsys, "OCI hooks")
    assert (hooks["state"], hooks["message"]) == ("ok", f"{site.parent}/oci: 1")


def test_a_broken_cdi_file_is_a_fault_with_its_name_and_a_remedy(
    site: Path, capsys: Capture
) -> None:
    (site.parent / "cdi/gpu.json").write_text('{"cdiVersion": "0.6.0", "kin": "x.org/gpu"}')
    devices = found(site, capsys, "CDI devices")
    assert devices["state"] == "failed"
    assert devices["message"].startswith(f"{site.parent}/cdi/gpu.json: ")
    assert "'kin'" in devices["message"]
    assert devices["remedy"].startswith("correct it, or take the file away")


def test_an_oci_hook_whose_program_is_missing_is_a_fault(site: Path, capsys: Capture) -> None:
    (site.parent / "oci/hook.json").write_text(
        json.dumps({**HOOK, "hook": {"path": "/no/such/program"}})
    )
    hooks = found(site, capsys, "OCI hooks")
    assert hooks["state"] == "failed"
    assert hooks["message"] == (
        "OCI hook '/no/such/program' (hook.json, prestart): No such file or directory"
    )
    assert "no container starts" in hooks["remedy"]


def test_a_container_is_not_tried_without_the_program_that_makes_an_image(tmp_path: Path) -> None:
    (found,) = all_checks._trial("/bin/false", {"PATH": str(tmp_path)}, [])
    assert (found.message, found.remedy) == (
        "not tried: mksquashfs is missing",
        "install squashfs-tools",
    )


def test_a_directory_of_oci_hooks_without_any_is_worth_a_warning(
    site: Path, capsys: Capture
) -> None:
    hooks = found(site, capsys, "OCI hooks")
    assert (hooks["state"], hooks["message"]) == ("warning", f"{site.parent}/oci has none")


def test_an_oci_hook_whose_stage_is_misspelt_is_a_fault(site: Path, capsys: Capture) -> None:
    (site.parent / "oci/hook.json").write_text(json.dumps({**HOOK, "stages": ["createRuntme"]}))
    hooks = found(site, capsys, "OCI hooks")
    assert hooks["state"] == "failed"
    assert "unknown stage 'createRuntme', it must be one of precreate," in hooks["message"]
