"""Settings, as texts and as numbers; and waiting for a release, without any engine."""

from __future__ import annotations

import signal
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from giveback import _native, engine, engine_stats, errors, launch

SHARES = ("cpu", "duty")
TIMES = ("pause", "age", "every")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ""),
        ({"cpu": "2.5%"}, "cpu=2.5%"),
        ({"cpu": 0.025}, "cpu=2.5%"),
        ({"duty": 1}, "duty=100%"),
        ({"cpu": Fraction(1, 40)}, "cpu=2.5%"),
        ({"pause": 1e-4, "age": 0.25}, "pause=100us,age=250000us"),
        ({"age": "2s", "policy": "trim", "every": 60}, "age=2s,every=60000000us,policy=trim"),
        ({"kernel": "old", "fastbins": "keep"}, "kernel=old,fastbins=keep"),
    ],
)
def test_settings_become_one_text(settings: dict[str, Any], expected: str) -> None:
    assert engine_text(settings) == expected


def engine_text(settings: dict[str, Any]) -> str:
    groups: list[dict[str, Any]] = [{}, {}, {}]
    for key, value in settings.items():
        groups[0 if key in SHARES else 1 if key in TIMES else 2][key] = value
    return engine._text(*groups)


@given(st.floats(0.0001, 1), st.floats(0.001, 3600))
def test_every_number_in_range_is_accepted(share: float, seconds: float) -> None:
    text = engine_text({"cpu": share, "age": seconds})
    assert _native.parse_config(text) == (_native.OK, "")
    assert float(text.split("%")[0].removeprefix("cpu=")) == pytest.approx(share * 100, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cpu": "5"}, "cpu must be a share of one core from 0.01% to 100%, not '5'"),
        ({"cpu": 5}, "not '500%'"),
        ({"cpu": 0}, "not '0%'"),
        ({"age": -1}, "age must be a time from 1ms to 60min"),
        ({"age": float("nan")}, "age must be one value, not nan"),
        ({"pause": True}, "pause must be one value, not True"),
        ({"pause": ""}, "pause must be one value"),
        ({"pause": b"1ms"}, "pause must be one value"),
        ({"policy": "off,cpu=3%"}, "policy must be one value"),
        ({"policy": "of\0f"}, "policy must be one value"),
        ({"policy": "o\ud800f"}, "policy must be one value"),
        ({"policy": "fast"}, "policy must be background, trim or off, not 'fast'"),
    ],
)
def test_what_cannot_be_is_one_line_that_helps(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        engine_text(settings)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@given(st.text(alphabet=st.characters(exclude_characters="\0")))
def test_no_text_breaks_the_parser(text: str) -> None:
    status, message = _native.parse_config(text.encode("utf-8", "surrogatepass").decode("latin-1"))
    assert status in (_native.OK, _native.BAD_CONFIG)
    assert bool(message) == (status == _native.BAD_CONFIG)
    assert message.isprintable() or not message


# ---- GIVEBACK and LD_PRELOAD of a program ----------------------------------------------------


def test_what_was_given_wins_over_what_is_inherited() -> None:
    assert launch.settings("", {}) == ""
    assert launch.settings("age=1s", {}) == "age=1s"
    assert launch.settings("age=1s,cpu=2%", {"cpu": "5%"}) == "age=1s,cpu=2%,cpu=5%"
    with pytest.raises(errors.ConfigError, match="GIVEBACK in the environment: no key 'agee'"):
        launch.settings("agee=1s", {"cpu": "5%"})
    with pytest.raises(errors.ConfigError, match="write the unit"):
        launch.settings("", {"cpu": "5"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ""),
        ("", ""),
        ("/lib/liba.so", ":/lib/liba.so"),
        ("/lib/liba.so /lib/libb.so", ":/lib/liba.so:/lib/libb.so"),
        ("/other/libgiveback.so:/lib/liba.so", ":/lib/liba.so"),
    ],
)
def test_ours_is_in_front_and_there_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None, after: str
) -> None:
    library = tmp_path / "libgiveback.so"
    library.touch()
    monkeypatch.setattr(launch, "library_path", lambda: library)
    base = {"A": "b"} | ({} if before is None else {"LD_PRELOAD": before})
    environment = launch.environment(base, "cpu=5%")
    assert environment == {"LD_PRELOAD": f"{library}{after}", "GIVEBACK": "cpu=5%", "A": "b"}
    assert "GIVEBACK" not in launch.environment(base, "")


@pytest.mark.parametrize("name", ["a folder", "a:folder", "$LIB"])
def test_a_path_that_ld_preload_cannot_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    library = tmp_path / name / "libgiveback.so"
    monkeypatch.setattr(launch, "library_path", lambda: library)
    with pytest.raises(launch.LaunchError, match="is missing"):
        launch.library()
    library.parent.mkdir()
    library.touch()
    with pytest.raises(launch.LaunchError, match="LD_PRELOAD cannot hold"):
        launch.library()


# ---- waiting for a release -------------------------------------------------------------------


class SlowEngine:
    """Answers a request after so many looks at its figures; counters wrap as in C."""

    def __init__(self, looks: int, wanted: int) -> None:
        self.looks = looks
        self.wanted = wanted
        self.requests = 0

    def engine_release(self, _timeout_ns: int) -> tuple[int, int, int]:
        self.requests += 1
        self.wanted = (self.wanted + 1) % 2**32
        return _native.TIMEOUT, 0, 0

    def engine_stats(self) -> tuple[int, dict[str, int]]:
        self.looks -= 1
        answered = self.wanted if self.looks <= 0 else (self.wanted - 1) % 2**32
        return _native.OK, {
            "wanted": self.wanted,
            "answered": answered,
            "reason": _native.OK,
            "answer_bytes": 4096,
            "answer_ns": 2_000_000_000,
        }


def slow_engine(monkeypatch: pytest.MonkeyPatch, looks: int, wanted: int = 0) -> SlowEngine:
    fake = SlowEngine(looks, wanted)
    constants = {name: getattr(_native, name) for name in dir(_native) if name.isupper()}
    functions = {
        "engine_release": fake.engine_release,
        "engine_stats": fake.engine_stats,
        "status_words": _native.status_words,
    }
    monkeypatch.setattr(engine, "_native", SimpleNamespace(**constants, **functions))
    monkeypatch.setattr(engine, "_open", lambda: False)
    return fake


@pytest.mark.parametrize("wanted", [0, 2**31 - 1, 2**32 - 1])
def test_a_long_release_is_requested_once_and_awaited(
    monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    fake = slow_engine(monkeypatch, looks=5, wanted=wanted)
    assert engine.release() == engine.Released(bytes=4096, seconds=2.0)
    assert fake.requests == 1


def test_a_release_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = slow_engine(monkeypatch, looks=10**9)
    begin = time.monotonic()
    with pytest.raises(errors.ReleaseTimeoutError, match="it goes on") as caught:
        engine.release(0.05)
    assert isinstance(caught.value, TimeoutError)
    assert time.monotonic() - begin >= 0.05
    assert fake.requests == 1


def test_ctrl_c_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_engine(monkeypatch, looks=10**9)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            engine.release()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_cannot_be(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout is in seconds"):
        engine.release(timeout)


def test_a_status_of_another_version_has_words() -> None:
    assert "does not know" in engine_stats.words(_native.DOUBT_FIGURES + 1)[0]
    assert engine_stats.words(_native.TIMEOUT) == _native.status_words(_native.TIMEOUT)
