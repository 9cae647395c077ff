"""The same program twice, side by side: plain, and under `giveback run`.

Runs spike.py, a service whose memory spikes and is then freed, as two processes at once, and draws
how much memory each occupies over time. Ctrl-C ends both.

    python examples/demo.py [--seconds 8] [--megabytes 400]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from giveback.engine_stats import Stats
from giveback.errors import GivebackError
from giveback.remote import engine

MB = 1_000_000
SAMPLES_A_SECOND = 5
ROWS = 14
COLUMNS = 64
GRACE_SECONDS = 5
SPIKE = Path(__file__).with_name("spike.py")
PLAIN, UNDER, BOTH = ("plain", "red"), ("under giveback", "green"), ("both", "yellow")


class Child:
    """One of the two processes, sampled from outside."""

    def __init__(self, prefix: list[str], options: list[str]) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(SPIKE), "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its children
        )
        self.rss: list[int] = []
        self.cpu = 0.0
        """Seconds of the whole process, at the last sample."""

    def sample(self) -> bool:
        """False if it has ended."""
        if self.process.poll() is not None:
            return False
        try:
            seen = psutil.Process(self.process.pid)
            self.rss.append(int(seen.memory_info().rss))
            times = seen.cpu_times()
        except psutil.Error:
            return False
        self.cpu = times.user + times.system
        return True

    def forget_last(self) -> None:
        """Drop the sample before its end was seen: it may have met a process half torn down."""
        if len(self.rss) > 1:
            self.rss.pop()

    def answer(self) -> dict[str, int]:
        """What it prints at its end."""
        output, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError((errors.strip().splitlines() or ["it ended early"])[-1])
        found: dict[str, int] = json.loads(output)
        return found

    def end(self) -> None:
        """End it if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.communicate()


def plot(plain: list[int], under: list[int], seconds: float) -> Group:
    """RSS over time, both in one picture, also readable without colours."""
    most = max(*plain, *under, MB)
    rows = [Text(f"{'RSS, MB':>8} ")]
    rows[0].append("p plain", PLAIN[1]).append("   g under giveback", UNDER[1])
    rows[0].append("   * both", BOTH[1])

    def height(values: list[int], column: int) -> int | None:
        """The row, from the bottom, of the last sample in a column."""
        last = int((column + 1) / COLUMNS * seconds * SAMPLES_A_SECOND) - 1
        first = int(column / COLUMNS * seconds * SAMPLES_A_SECOND)
        if first >= len(values):
            return None
        return round(values[max(first, min(last, len(values) - 1))] / most * (ROWS - 1))

    heights = [(height(plain, c), height(under, c)) for c in range(COLUMNS)]
    for row in reversed(range(ROWS)):
        text = Text(f"{most * row / (ROWS - 1) / MB:8.0f} |", end="")
        for p, g in heights:
            if p == row and g == row:
                text.append("*", BOTH[1])
            elif p == row:
                text.append("p", PLAIN[1])
            elif g == row:
                text.append("g", UNDER[1])
            else:
                text.append(" ")
        text.rstrip()
        rows.append(text)
    rows.append(Text(f"{'':8} +{'-' * COLUMNS}"))
    rows.append(Text(f"{'':8}  0 s{seconds:>{COLUMNS - 6}.0f} s"))
    for text in rows:
        text.end = "\n"
    return Group(*rows)


def watch(
    plain: Child, under: Child, seconds: float, show: Callable[[float], None]
) -> Stats | None:
    """Sample both until one ends; the engine's last figures."""
    stats = None
    begin = time.monotonic()
    for tick in range(1, 10 * int(seconds + GRACE_SECONDS) * SAMPLES_A_SECOND):
        if not (plain.sample() and under.sample()):
            for child in (plain, under):
                child.forget_last()
            break
        with contextlib.suppress(GivebackError):  # not started yet, or ended
            stats = engine.read(under.process.pid)
        show(time.monotonic() - begin)
        time.sleep(max(0.0, begin + tick / SAMPLES_A_SECOND - time.monotonic()))
    return stats


def verdict(plain: Child, under: Child, stats: Stats | None) -> str:
    """The last line: what is still held, what came back, what it cost."""
    kept = plain.answer()
    left = under.answer()
    if stats is None or stats.state != "runs":
        raise RuntimeError((stats and stats.reason) or "the engine did not start")
    cost = stats.engine_cpu_ns / 1e9
    return (
        f"plain still holds {kept['held'] / MB:.0f} MB of free memory "
        f"(RSS {kept['rss'] / MB:.0f} MB); "
        f"under giveback {(stats.returned - stats.refaulted) / MB:.0f} MB came back, "
        f"{left['held'] / MB:.0f} MB are held (RSS {left['rss'] / MB:.0f} MB), "
        f"for {cost * 1e3:.0f} ms of CPU, {cost / max(under.cpu, 1e-9):.1%} of the program's"
    )


def run(options: argparse.Namespace) -> int:
    """Run both and draw them."""
    console = Console(highlight=False)
    arguments = [f"--seconds={options.seconds}", f"--megabytes={options.megabytes}"]
    children: list[Child] = []
    try:
        for prefix in ([], [sys.executable, "-m", "giveback", "run", "--"]):
            children.append(Child(prefix, arguments))
        plain, under = children
        span = options.seconds + 1
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:

                def draw(_elapsed: float) -> None:
                    live.update(plot(plain.rss, under.rss, span), refresh=True)

                stats = watch(plain, under, options.seconds, draw)
        else:

            def say(elapsed: float) -> None:
                if len(plain.rss) % SAMPLES_A_SECOND == 0:
                    now = f"plain {plain.rss[-1] / MB:.0f} MB, "
                    now += f"under giveback {under.rss[-1] / MB:.0f} MB"
                    print(f"{elapsed:.0f} s: RSS {now}", flush=True)

            stats = watch(plain, under, options.seconds, say)
            console.print(plot(plain.rss, under.rss, span))
        print(verdict(plain, under, stats))
    finally:
        for child in children:
            child.end()
    return 0


def main() -> int:
    """Parse, run, and end what was started, whatever happens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="how long to run (default 8)")
    parser.add_argument("--megabytes", type=int, default=400, help="size of the spike")
    options = parser.parse_args()
    if not 1 <= options.seconds <= 3600 or options.megabytes < 1:
        parser.error("--seconds is from 1 to 3600, --megabytes at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RuntimeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
