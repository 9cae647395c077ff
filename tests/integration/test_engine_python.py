"""The engine as Python programs and the command line use it: real processes, real memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.children import SECONDS, run_python, waiting
from support.users import as_ordinary_user

from giveback import _native, library_path

pytestmark = pytest.mark.skipif(not library_path().is_file(), reason="libgiveback.so is not built")

COMMAND = [sys.executable, "-m", "giveback"]
RUN = [*COMMAND, "run"]

# Blocks that malloc serves, with survivors between them, so that freeing gives nothing back.
HOLES = """
import gc, sys
def holes():
    blocks = [bytes(20_000) for _ in range(3000)]
    kept = blocks[::10]
    del blocks
    return kept
"""
# Large enough that a preloaded engine starts, and then at rest.
SERVICE = HOLES + "kept = holes(); print('ready', flush=True); sys.stdin.read()"


def python(code: str, *prefix: str, **environment: str) -> str:
    done = run_python(textwrap.dedent(code), *prefix, **environment)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def asked(*arguments: str) -> dict[str, Any]:
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# ---- inside one process ----------------------------------------------------------------------


def test_start_stats_stop() -> None:
    python("""
        import giveback
        assert giveback.stats().state == "none"
        assert giveback.start(cpu=0.05, age="1s", pause=2e-4, duty="20%") is True
        stats = giveback.stats()
        assert (stats.state, stats.reason, stats.policy) == ("runs", None, "background"), stats
        assert (stats.cpu, stats.duty) == (0.05, 0.2), stats
        assert (stats.pause_ns, stats.age_ns) == (200_000, 1_000_000_000), stats
        assert stats.to_dict()["started_ns"] == stats.started_ns > 0
        assert giveback.start() is False, "shared, unchanged"
        assert giveback.stats().started_ns == stats.started_ns
        try:
            giveback.start(cpu="1%")
        except giveback.EngineError as error:
            assert "stop() it first" in str(error)
        else:
            raise AssertionError("new budgets were ignored")
        giveback.stop()
        giveback.stop()
        assert giveback.stats().state == "none"
    """)


def test_release_brings_memory_back_with_and_without_an_engine() -> None:
    code = """
        import giveback, os
        def rss():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for engine in (False, True):
            if engine:
                giveback.start(age="60min")
            kept = holes()
            before = rss()
            released = giveback.release(timeout=60)
            assert released.bytes > 40_000_000, released
            assert before - rss() > 40_000_000, (before, rss())
            assert 0 < released.seconds < 60
            assert giveback.stats().state == ("runs" if engine else "none")
            del kept
    """
    python(HOLES + textwrap.dedent(code))


def test_a_release_without_an_engine_that_takes_too_long() -> None:
    python("""
        import giveback
        try:
            giveback.release(timeout=0)
        except giveback.ReleaseTimeoutError as error:
            assert "no engine is left" in str(error)
        else:
            raise AssertionError("no time at all was enough")
        assert giveback.stats().state == "none"
    """)


def test_memory_comes_back_by_itself() -> None:
    code = """
        import giveback, time
        with giveback.running(age="50ms"):
            kept = holes()
            deadline = time.monotonic() + 60
            while giveback.stats().returned < 40_000_000:
                assert time.monotonic() < deadline, giveback.stats()
                time.sleep(0.02)
        assert giveback.stats().state == "none"
    """
    python(HOLES + textwrap.dedent(code))


def test_running_stops_only_what_it_started() -> None:
    python("""
        import giveback
        giveback.start()
        with giveback.running():
            pass
        assert giveback.stats().state == "runs"
        try:
            with giveback.running(cpu="2%"):
                raise AssertionError("ran with other settings")
        except giveback.EngineError:
            pass
        giveback.stop()
        try:
            with giveback.running():
                raise KeyError
        except KeyError:
            pass
        assert giveback.stats().state == "none"
    """)


def test_threads_that_all_release_at_once() -> None:
    code = """
        import giveback, threading
        kept, failed = [], []
        def work():
            try:
                for _ in range(5):
                    kept.append(holes())
                    giveback.release(60)
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failed, failed
        assert giveback.stats().state == "none"
    """
    python(HOLES.replace("3000", "300") + textwrap.dedent(code))


FORK = """
import os, giveback
{before}
child = os.fork()
if child == 0:
    stats = giveback.stats()
    good = (stats.state, stats.age_ns) == {expected}
    if good and stats.state == "runs":
        giveback.release(60)
        giveback.stop()
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert giveback.stats().state == "{parent}"
"""


@pytest.mark.parametrize(
    ("before", "parent", "expected"),
    [
        ("giveback.start(age='2s')", "runs", ("runs", 2_000_000_000)),
        ("giveback.start(); giveback.stop()", "none", ("none", 0)),
        ("giveback.release(60)", "none", ("none", 0)),
        ("", "none", ("none", 0)),
    ],
)
def test_a_fork_child_has_an_engine_as_its_parent_has(
    before: str, parent: str, expected: tuple[str, int]
) -> None:
    python(FORK.format(before=before, parent=parent, expected=expected))


def test_a_process_without_memory_for_it_says_so() -> None:
    python("""
        import giveback, resource
        size = int(open("/proc/self/statm").read().split()[0]) * 4096
        giveback.stats()  # the library is loaded
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        try:
            giveback.start()
        except giveback.GivebackError as error:
            assert error.remedy, error
    """)


def test_another_allocator_is_left_alone() -> None:
    from .test_surroundings import foreign_library

    code = """
        import giveback
        for call in (giveback.start, giveback.release):
            try:
                call()
            except giveback.UnsupportedError as error:
                assert "not glibc's" in str(error)
            else:
                raise AssertionError("it touched another allocator")
        assert "not glibc's" in giveback.stats().reason
    """
    python(code, LD_PRELOAD=str(foreign_library("jemalloc")))


def test_giveback_is_for_the_preloaded_library_only() -> None:
    """A program that starts the engine itself says itself how; a wrong GIVEBACK is not its own."""
    code = """
        import ctypes, giveback
        giveback.start()
        assert giveback.stats().age_ns == 250_000_000
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        print(getenv(b"GIVEBACK").decode())
    """
    for text in ("age=5", "children=no,age=1s"):
        done = run_python(textwrap.dedent(code), GIVEBACK=text)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{text}\n", "")


# ---- preloaded, and shared -------------------------------------------------------------------


def test_a_preloaded_engine_is_shared() -> None:
    code = """
        import giveback
        kept = holes()  # now it runs
        stats = giveback.stats()
        assert (stats.state, stats.age_ns) == ("runs", 777_000_000), stats
        assert giveback.start() is False
        assert giveback.stats().started_ns == stats.started_ns
        try:
            giveback.start(age="1s")
        except giveback.EngineError:
            pass
        else:
            raise AssertionError("new budgets were ignored")
        giveback.stop()
        assert giveback.start(age="1s") is True
        assert giveback.stats().age_ns == 1_000_000_000
    """
    python(HOLES + textwrap.dedent(code), *RUN, "--age", "777ms", "--")


@pytest.mark.parametrize("options", [[], ["--no-children"]])
def test_a_preloaded_engine_that_has_not_begun_begins_with_its_settings(
    options: list[str],
) -> None:
    # Python is neither old nor large by then.
    code = """
        import giveback
        assert giveback.start(cpu="7%") is True
        stats = giveback.stats()
        assert (stats.cpu, stats.age_ns) == (0.07, 777_000_000), stats
    """
    early = run_python(textwrap.dedent(code), *RUN, *options, "--age", "777ms", "--")
    if "an engine runs in this process already" in early.stderr:
        pytest.skip("this machine is so slow that the engine had begun")
    assert early.returncode == 0, early.stderr


def test_policy_off_is_obeyed_and_told() -> None:
    code = """
        import giveback
        assert giveback.start() is False
        stats = giveback.stats()
        assert (stats.state, stats.policy) == ("none", "off")
        assert "policy=off" in stats.reason
        try:
            giveback.release()
        except giveback.EngineError as error:
            assert "policy=off" in str(error)
    """
    python(code, *RUN, "--policy", "off", "--")


def test_the_view_works_under_it() -> None:
    code = """
        import giveback
        kept = holes()
        giveback.release(60)
        heap = giveback.glibc_heap()
        assert heap.returned > 40_000_000, heap
        import giveback.doctor
        report = giveback.doctor.examine()
        assert report.allocator == "glibc", report
        assert any(f.subject == "engine" and f.verdict == "good" for f in report.findings), report
    """
    python(HOLES + textwrap.dedent(code), *RUN, "--")


# ---- giveback run leaves everything else as it is -----------------------------------------------


def shell(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, "--cpu", "5%", "--", "sh", "-c", code, "name of mine"],
        input="from stdin\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environment},
    )


def test_exit_code_signals_and_streams_are_the_programs_own() -> None:
    assert shell("exit 7").returncode == 7
    assert shell("kill -TERM $$").returncode == -signal.SIGTERM
    done = shell("cat; echo to stderr >&2; echo $0")
    assert (done.stdout, done.stderr) == ("from stdin\nname of mine\n", "to stderr\n")
    with subprocess.Popen([*RUN, "--", "sh", "-c", "echo $$"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert int(child.stdout.read()) == child.pid


def test_the_program_sees_no_trace_of_python() -> None:
    # Python ignores SIGPIPE, and changes LC_CTYPE in the C locale.
    code = "env; grep SigIgn /proc/self/status"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "", "LANG": "C"}
    plain = subprocess.run(
        ["sh", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    under = subprocess.run(
        [*RUN, "--age", "1s", "--", "sh", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    more = set(under.stdout.splitlines()) ^ set(plain.stdout.splitlines())
    more = {line for line in more if not line.startswith("_=")}
    assert more == {f"LD_PRELOAD={library_path()}", "GIVEBACK=age=1s"}


def test_what_is_no_text_is_passed_on() -> None:
    code = [sys.executable, "-c", "import os, sys; print(sys.argv[1:], os.environb[b'ODD'])"]
    done = subprocess.run(
        [*RUN, "--", *code, b"\xff"],
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env={**os.environb, b"ODD": b"\xfe="},
    )
    assert done.stdout == b"['\\udcff'] b'\\xfe='\n", done.stderr


def test_what_is_preloaded_already_stays_and_ours_comes_first_once(tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    source = tmp_path / "other.c"
    source.write_text("int other;\n")
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", str(source), "-o", str(other)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("no C compiler")
    inner = f"{sys.executable} -m giveback run --age 1s -- sh -c 'echo $LD_PRELOAD $GIVEBACK'"
    found = shell(inner, LD_PRELOAD=str(other), GIVEBACK="duty=20%")
    assert found.stdout == f"{library_path()}:{other} duty=20%,cpu=5%,age=1s\n", found.stderr


def test_children_have_the_engine_unless_told_otherwise() -> None:
    seen = "grep -c libgiveback /proc/self/maps"
    for options, there in (([], True), (["--no-children"], False)):
        done = subprocess.run(
            [*RUN, *options, "--", "sh", "-c", f"{seen}; :"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.stdout != "0\n") is there, (done.stdout, done.stderr)


# ---- stats, trim and doctor of another process ---------------------------------------------------


def test_stats_trim_and_doctor_of_a_process() -> None:
    with waiting([*RUN, "--age", "60min", "--", sys.executable, "-c", SERVICE]) as child:
        pid = str(child.pid)
        stats = asked("stats", pid)
        assert (stats["schema"], stats["pid"], stats["state"]) == (1, child.pid, "runs")
        assert stats["age_ns"] == 3600 * 10**9

        trimmed = asked("trim", pid)
        assert trimmed["returned"] > 40_000_000, trimmed
        assert trimmed["rss_before"] - trimmed["rss_after"] > 40_000_000, trimmed
        assert asked("stats", pid)["returned"] >= trimmed["returned"]

        again = command("trim", pid)
        assert again.returncode == 1  # nothing was left
        assert "came back in" in again.stdout

        lines = dict(line.split("\t") for line in command("stats", pid).stdout.splitlines())
        assert lines["engine"] == "runs"
        assert lines["policy"].startswith("background; cpu 1%, pause 100 us, duty 10%, age 3600 s")

        report = json.loads(command("doctor", "--json", pid).stdout)
        assert report["allocator"] == "glibc"
        engine = next(f for f in report["findings"] if f["subject"] == "engine")
        assert engine["verdict"] == "good"
        assert child.poll() is None, "it goes on"
        stopped = child.communicate("", SECONDS)
        assert (child.returncode, *stopped) == (0, "", "")


def test_a_process_that_started_it_itself_can_be_asked() -> None:
    code = f"import giveback; giveback.start(age='60min')\n{SERVICE}"
    with waiting([sys.executable, "-c", code]) as child:
        assert asked("trim", str(child.pid))["returned"] > 40_000_000
        assert asked("stats", str(child.pid))["state"] == "runs"


def test_a_preloaded_engine_that_has_not_begun_is_explained() -> None:
    with waiting([*RUN, "--", "sh", "-c", "echo ready; read line"]) as child:
        done = command("stats", str(child.pid))
        assert done.returncode == 2
        assert "has not started" in done.stderr
    with waiting([*RUN, "--policy=off", "--", "sh", "-c", "echo ready; read line"]) as child:
        done = command("trim", str(child.pid))
        assert done.returncode == 2
        assert "policy=off" in done.stderr


def test_a_wrong_giveback_stops_no_program_and_is_explained() -> None:
    code = "echo ready; read line"
    environment = {"LD_PRELOAD": str(library_path()), "GIVEBACK": "age=5"}
    with waiting(["sh", "-c", code], **environment) as child:
        done = command("stats", str(child.pid))
        assert done.returncode == 2
        assert "its GIVEBACK is wrong: age must be" in done.stderr


@pytest.mark.parametrize("killed", [True, False])
def test_watching_ends_with_the_process(tmp_path: Path, killed: bool) -> None:
    file = tmp_path / "giveback.prom"
    with waiting([*RUN, "--", sys.executable, "-c", SERVICE]) as child:
        watch = [*COMMAND, "stats", str(child.pid), "--watch", "--interval", "100ms"]
        with (
            subprocess.Popen([*watch, "--json"], stdout=subprocess.PIPE, text=True) as lines,
            subprocess.Popen([*watch, "--prometheus", str(file)]) as writer,
        ):
            assert lines.stdout is not None
            first, second = (json.loads(lines.stdout.readline()) for _ in range(2))
            assert second["time"] > first["time"]
            while not file.exists():
                assert writer.poll() is None
            assert f'giveback_up{{pid="{child.pid}"' in file.read_text()
            if killed:
                child.kill()
            child.communicate("")
            assert lines.wait(SECONDS) == 0
            assert writer.wait(SECONDS) == 0
    assert not file.exists(), "figures of a process that is gone"


def test_ctrl_c_ends_watching() -> None:
    with waiting([*RUN, "--", sys.executable, "-c", SERVICE]) as child:
        watch = [*COMMAND, "stats", str(child.pid), "--watch"]
        with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as lines:
            assert lines.stdout is not None
            assert b"returned" in lines.stdout.readline()
            lines.send_signal(signal.SIGINT)
            assert lines.wait(SECONDS) == 130
            assert lines.stderr is not None
            assert lines.stderr.read().strip() == b""


def test_a_process_in_a_container() -> None:
    """Its ids differ from those that we see, and so does its file system."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces here")
    inside = ["sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
    service = [*RUN, "--age", "60min", "--", sys.executable, "-c", SERVICE]
    with waiting([*unshare, *inside, *service]) as child:
        (pid,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        assert asked("stats", pid)["state"] == "runs"
        assert asked("trim", pid)["returned"] > 40_000_000
        assert child.poll() is None


def test_an_ordinary_user_can_ask_a_process_of_their_own(tmp_path: Path) -> None:
    limited = as_ordinary_user(tmp_path)
    service = [*limited, *RUN, "--age", "60min", "--", sys.executable, "-c", SERVICE]
    with waiting(service) as child:
        done = subprocess.run(
            [*limited, *COMMAND, "trim", "--json", str(child.pid)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["returned"] > 40_000_000
        child.communicate(
            ""
        )  # killed, it would leave its file in /dev/shm: only its user removes it


def test_an_engine_of_another_version_is_named() -> None:
    descriptor = os.memfd_create("page")
    try:
        os.write(descriptor, bytes(4096))
        assert _native.stats_from_file(descriptor)[0] == _native.OTHER_ENGINE
        assert _native.request_release(descriptor)[0] == _native.OTHER_ENGINE
        os.truncate(descriptor, 100)
        assert _native.stats_from_file(descriptor)[0] == _native.OTHER_ENGINE
        assert _native.request_release(descriptor)[0] == _native.OTHER_ENGINE
        assert _native.await_release(descriptor, 1, 0)[0] == _native.OTHER_ENGINE
    finally:
        os.close(descriptor)
