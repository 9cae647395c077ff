"""A service with a spike: threads answer requests, memory is freed, and most of it stays.

Eight threads build answers out of blocks of 1 to 64 KB, keep a small part of them (a cache), and
let go of the rest. Meanwhile the main thread asks giveback four times a second what this very
process holds, arena by arena, and draws it. Runs as it is, or under `giveback run`.

    python examples/spike.py [--seconds 6] [--threads 8] [--megabytes 400] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import giveback

MB = 1_000_000
KEPT_OF_A_HUNDRED = 2
LOOKS_A_SECOND = 4
BAR_CELLS = 60
STAGES = (("live", "green"), ("slack", "yellow"), ("held", "red"), ("returned", "bright_black"))


class Service:
    """Worker threads that spike, calm down, and stay."""

    def __init__(self, threads: int, megabytes: int) -> None:
        self.share = megabytes * MB // threads
        self.calm = threading.Event()
        self.done = threading.Event()
        # Daemons: whatever goes wrong before they are told to end, the program can.
        self.threads = [
            threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(threads)
        ]

    def start(self) -> None:
        """Start all threads."""
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        """End all threads that were started."""
        self.calm.set()
        self.done.set()
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()

    def _work(self, seed: int) -> None:
        rng = random.Random(seed)
        cache: list[bytes] = []
        while not self.calm.is_set():
            answer, size = [], 0
            while size < self.share and not self.calm.is_set():
                block = bytes(rng.randrange(1024, 65536))
                size += len(block)
                answer.append(block)
                if rng.randrange(100) < KEPT_OF_A_HUNDRED:
                    cache.append(block)
            cache = cache[-len(answer) * KEPT_OF_A_HUNDRED // 100 :]
        answer = []
        self.done.wait()


def rss() -> int:
    """Resident bytes of this process."""
    resident = Path("/proc/self/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def draw(heap: giveback.GlibcHeap, phase: str, scale: int) -> Group:
    """One picture: totals as a bar, then a line an arena."""
    bar = Text()
    for name, style in STAGES:
        cells = round(getattr(heap, name) / max(scale, heap.system, 1) * BAR_CELLS)
        bar.append(name[0] * cells, style=style)  # readable without colours, too
    bar.append("\n(l live, s slack, h held, r returned)", style="dim")
    table = Table(box=None, pad_edge=False)
    for heading in ("arena", "system MB", "live", "slack", "held", "returned", "free chunks"):
        table.add_column(heading, justify="right")
    for number, arena in enumerate(heap.arenas):
        table.add_row(
            "main" if arena.is_main else str(number),
            f"{arena.system / MB:.1f}",
            f"{arena.live / MB:.1f}",
            f"{arena.slack / MB:.1f}",
            f"{arena.held / MB:.1f}",
            f"{arena.returned / MB:.1f}",
            f"{arena.bins_chunks}",
        )
    hold = heap.longest_hold_ns / 1e3
    title = f"{phase}: RSS {rss() / MB:.0f} MB; this look took {heap.wall_ns / 1e6:.1f} ms, "
    title += f"no lock longer than {hold:.0f} us"
    return Group(Text(title), bar, table)


def line(heap: giveback.GlibcHeap, phase: str) -> str:
    """The same in one line, for pipes."""
    stages = ", ".join(f"{name} {getattr(heap, name) / MB:.0f}" for name, _ in STAGES)
    return f"{phase}: RSS {rss() / MB:.0f} MB; heap {heap.system / MB:.0f} MB = {stages}"


def main() -> int:
    """Run the spike and show it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6, help="how long to run (default 6)")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=400, help="size of the spike")
    parser.add_argument("--json", action="store_true", help="look, and print, only at the end")
    options = parser.parse_args()
    if not options.seconds > 0 or options.threads < 1 or options.megabytes < 1:
        parser.error("--seconds, --threads and --megabytes must be positive")

    console = Console()
    try:
        heap = giveback.glibc_heap()
    except giveback.GivebackError as error:
        print(f"spike: {error}", file=sys.stderr)
        return 1
    service = Service(options.threads, options.megabytes)
    begin = time.monotonic()
    peak = settled = rss()
    try:
        service.start()
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while (elapsed := time.monotonic() - begin) < options.seconds:
                if elapsed > options.seconds / 2:
                    service.calm.set()
                phase = "after the spike" if service.calm.is_set() else "spike"
                settled = rss()
                peak = max(peak, settled)
                if not options.json:
                    heap = giveback.glibc_heap()
                    if console.is_terminal:
                        live.update(draw(heap, phase, peak), refresh=True)
                    else:
                        print(line(heap, phase), flush=True)
                service.done.wait(1 / LOOKS_A_SECOND)
        if options.json:
            heap = giveback.glibc_heap()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    finally:
        service.end()
    if options.json:
        print(json.dumps({"peak": peak, "rss": settled, "live": heap.live, "held": heap.held}))
        return 0
    print(
        f"peak {peak / MB:.0f} MB, now {settled / MB:.0f} MB, "
        f"of which {heap.live / MB:.0f} MB are live: "
        f"glibc holds {heap.held / MB:.0f} MB of whole free pages that it could give back "
        f"({heap.slack / MB:.0f} MB more are slack beside live data)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
