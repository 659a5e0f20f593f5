"""The guard's report as one line for the user."""

import errno
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from container_engine.faults.catalogue import FAULTS
from container_engine.node.report.guard_failure import LIMITS, explain, of_entrypoint, of_workdir
from tests.c_header import SPANK_PLUGIN


def said(report: str) -> str:
    return str(explain(report))


def test_the_kernels_reason_comes_last() -> None:
    assert said("overlay\n2\ncannot mount the image's overlay\n") == (
        "cannot mount the image's overlay: No such file or directory"
    )


def test_without_a_reason_of_the_kernel_there_is_none() -> None:
    assert said("container\n0\nthe container's init process ended\n") == (
        "the container's init process ended"
    )


def test_the_last_line_of_an_entrypoint_is_reported_and_not_the_containers_number() -> None:
    log = f"licence has expired\n{'0123456789abcdef' * 4}\n"
    assert said(f"container\n0\nthe container's init process ended\n{log}") == (
        "the container's init process ended (licence has expired)"
    )


def test_an_entrypoint_that_is_a_program_is_named_with_what_it_printed() -> None:
    report = "container\n0\nthe container's init process ended\nargs ['/dev/.ce-init']\n"
    assert str(of_entrypoint(report, ["python3", "/app/my train.py"])) == (
        "the image's entrypoint ended instead of executing its arguments:"
        " python3 '/app/my train.py' (args ['/dev/.ce-init'])"
    )
    assert of_entrypoint(report, ()) is None
    foreign = of_entrypoint("container\n0\nx\n/e.sh: Exec format error, started in /w\n", ["/e.sh"])
    assert foreign is not None
    assert foreign.see == "image-architecture"
    assert "for a different processor" in str(foreign)
    assert of_entrypoint("overlay\n2\ncannot mount\n", ["python3"]) is None


def test_the_last_line_of_a_helper_is_reported() -> None:
    assert said("fuse\n0\nthe image server ended\nfirst\nlast words\n\n") == (
        "the image server ended (last words)"
    )


@pytest.mark.parametrize(
    ("stage", "number", "words"),
    [
        ("namespaces", 1, "user namespaces are not permitted on this node"),
        ("namespaces", 13, "AppArmor or another security module of this node refuses user"),
        ("namespaces", 28, "no more user namespaces on this node"),
        ("process-namespace", 28, "no more PID namespaces on this node (sysctl user.max_pid_"),
        ("mount-namespace", 28, "no more mount namespaces on this node (sysctl user.max_mnt_"),
        ("session", 28, "no more mounts on this node (sysctl fs.mount-max)"),
        ("fuse", 13, "/dev/fuse may not be opened (it must have mode 0666"),
        ("fuse", 2, "/dev/fuse does not exist"),
        ("session", 1, "the kernel refuses to mount /proc"),
    ],
)
def test_misleading_words_of_the_kernel_are_translated(stage: str, number: int, words: str) -> None:
    assert said(f"{stage}\n{number}\nwhatever\nlog").startswith(words)


@pytest.mark.parametrize(
    ("report", "remedy"),
    [
        ("fuse\n24\ncannot open /dev/fuse", "ulimit -n"),
        ("overlay\n23\ncannot mount", "fs.file-max"),
        ("start\n11\ncannot start the process that guards the container", "ulimit -u"),
        ("session\n12\ncannot mount", "--mem"),
        ("crun\n0\ncrun ended\nerror opening file `/proc/1`: Too many open files", "ulimit -n"),
        ("crun\n0\ncrun ended\nsendmsg: Too many references: cannot splice", "ulimit -n"),
        ("start\n109\ncannot send", "ulimit -n"),
        ("crun\n0\ncrun ended\nfork: Resource temporarily unavailable", "ulimit -u"),
    ],
)
def test_a_limit_that_is_reached_is_no_fault_of_the_node(report: str, remedy: str) -> None:
    error = explain(report)
    assert error.see == "limit-reached"
    assert remedy in (error.hint or "")


def test_a_limit_is_one_for_programs_in_c_too() -> None:
    text = (SPANK_PLUGIN / "common/error.c").read_text(encoding="utf-8")
    [names] = re.findall(r"limits\[\] = \{ (.*) \};", text)
    assert {getattr(errno, name) for name in names.split(", ")} == {*LIMITS}


def test_mounts_that_are_used_up_are_no_lack_of_space() -> None:
    log = "mount `/etc/resolv.conf` to `etc/resolv.conf`: No space left on device"
    found = explain(f"crun\n0\ncrun\n{log}\n")
    assert "(no more mounts on this node (sysctl fs.mount-max))" in str(found)
    assert found.see == "proc-covered"


@pytest.mark.parametrize("call", ["clone", "unshare"])
def test_namespaces_that_are_used_up_are_no_lack_of_space(call: str) -> None:
    error = explain(f"crun\n0\ncrun ended with exit code 1\n{call}: No space left on device")
    assert error.see == "user-namespaces"
    assert "sysctl user.max_user_namespaces" in str(error)


def test_podmans_own_error_is_the_message() -> None:
    log = "time=... level=warning\nError: first\nError: crun: the cause\n"
    assert said(f"podman\n0\nPodman ended with exit code 126\n{log}") == (
        "Podman cannot start the container: crun: the cause"
    )


@pytest.mark.parametrize(
    "words",
    [
        "mkdir `etc/passwd/x`: Not a directory",
        # since 1.21
        "error creating directory `passwd/x` since `passwd` exists and it is not a directory: "
        "Not a directory",
    ],
)
def test_a_mount_below_a_file_is_recognized_in_the_words_of_every_crun(words: str) -> None:
    failure = explain(f"podman\n0\nPodman ended\nError: OCI runtime error: crun: {words}\n")
    assert failure.see == "mount-destination"
    assert str(failure).endswith("(a mount's destination would be below a file of the image)")


def test_podman_without_words_still_says_how_it_ended() -> None:
    assert said("podman\n0\nPodman was killed by signal 9\n") == (
        "Podman cannot start the container: Podman was killed by signal 9"
    )


@pytest.mark.parametrize("words", ["no space left on device", "database or disk is full"])
def test_too_little_space_is_reported_in_the_kernels_words(words: str) -> None:
    found = explain(f"podman\n0\nx\nError: committing transaction: {words}\n")
    assert "no space left on device (the container's space in memory, tmpfs_size" in str(found)
    assert found.see == "container-space"


def test_an_entrypoint_for_another_processor_is_the_images_fault() -> None:
    log = "crun: exec container process `/entry.sh`: Exec format error\n"
    found = explain(f"crun\n0\ncrun ended with exit code 1\n{log}")
    assert "(the image is for a different processor than this node's)" in str(found)
    assert found.see == "image-architecture"


@pytest.mark.parametrize("program", ["./ep.sh", "bin/ep.sh"])
def test_an_entrypoint_that_is_looked_for_in_the_wrong_directory_is_explained(program: str) -> None:
    log = f"crun: executable file `{program}` not found in $PATH: No such file or directory\n"
    found = explain(f"crun\n0\ncrun ended with exit code 1\n{log}")
    assert "(entrypoints start in the image's WORKDIR)" in str(found)
    assert "full path into ENTRYPOINT" in str(found.hint)
    found = explain(f"crun\n0\nx\n{log.replace(program, '/ep.sh')}")
    assert "WORKDIR" not in str(found)


def test_crun_without_room_for_its_copy_says_so_by_its_exit_code() -> None:
    found = explain("crun\n0\ncrun ended with exit code 28\n")
    assert found.see == "container-space"
    assert str(found).startswith("crun cannot start the container: no space left on device (")


def test_a_hybrid_cgroup_hierarchy_is_explained() -> None:
    log = "Error: crun: opening file `cgroup.controllers` of the unified hierarchy\n"
    found = explain(f"podman\n0\nx\n{log}")
    assert "hybrid cgroup hierarchy" in str(found)
    assert found.see == "cgroups-hybrid"


@pytest.mark.parametrize(
    ("creator", "before"), [("crun", ""), ("podman", "Error: OCI runtime error: crun: ")]
)
def test_a_file_on_a_directory_is_a_matter_of_the_destination(creator: str, before: str) -> None:
    found = explain(f"{creator}\n0\nx\n{before}mount `/a` to `tmp`: Not a directory\n")
    assert "mount `/a` to `tmp`: Not a directory (only a file can be mounted on a file" in str(
        found
    )
    assert found.see == "mount-destination"


def test_a_directory_on_the_containers_passwd_is_a_matter_of_the_destination() -> None:
    found = explain("podman\n0\nx\nError: unable to find user 1001: read /tmp: is a directory\n")
    assert found.see == "mount-destination"
    assert "only a file can be mounted on a file" in str(found)


def test_a_crash_of_podman_is_reported_with_its_cause_and_not_the_end_of_its_stack() -> None:
    log = "fatal error: out of memory\n\nruntime stack:\nrt0_go()\n\tasm.s:345 +0x11c\n"
    assert said(f"podman\n0\nx\n{log}") == (
        "Podman cannot start the container: fatal error: out of memory"
    )


@given(st.text())
@example("\n²")  # a digit that is not a decimal one
def test_any_report_is_explained_without_a_mistake(report: str) -> None:
    assert explain(report).see in FAULTS


def test_an_image_that_cannot_be_read_while_its_container_is_made_is_the_cause() -> None:
    error = explain("mkdir\n5\ncannot make '/etc' in the image\n")
    assert str(error) == "cannot make '/etc' in the image: Input/output error"
    assert error.see == "image-damaged"


def test_a_link_of_the_image_that_leads_nowhere_is_no_fault_of_the_node() -> None:
    led = "cannot make '/a/b' in the image, where '/a' is a link to 'etc/passwd'"
    found = explain(f"root-place\n{errno.ENOTDIR}\n{led}\n")
    assert (found.see, found.reason) == ("mount-destination", f"{led}: Not a directory")
    assert "correct the link" in str(found.hint)
    plain = explain(f"root-place\n{errno.ENOTDIR}\ncannot make '/etc/passwd/x' in the image\n")
    assert plain.see == "mount-destination"
    assert "below a file" in plain.reason
    for number in (errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, 0):
        assert explain(f"root-dir\n{number}\ncannot make it\n").see == "image-path"
    assert explain(f"root-dir\n{errno.EROFS}\ncannot make it\n").see == "container-setup"


def test_a_missing_workdir_says_who_chose_it() -> None:
    report = f"workdir\n{errno.ENOENT}\nworkdir '/x'\n"
    found = of_workdir(report, "/e.toml:3")
    assert found is not None
    assert (found.see, found.where) == ("workdir-missing", "/e.toml:3")
    of_image = of_workdir(report, "the image")
    assert of_image is not None
    assert "mount hides it" in str(of_image.hint)
    assert of_workdir("root-dir\n2\nx\n", "x") is None


def test_a_mount_that_hides_another_one_is_an_error_of_the_destination() -> None:
    said = "the mount on '/a' would hide the one on '/b/c', which is '/a/c' in the image"
    found = explain(f"root-order\n0\n{said}\n")
    assert (found.reason, found.see) == (said, "mount-destination")
