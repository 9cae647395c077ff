"""The allocators that the bench compares giveback with, fetched where they are not installed.

They are Debian's packages, unpacked into a cache folder (debian.py); those of the machine itself
are used first. What cannot be had is reported with the reason, and is a row that says so.

    python tools/peers.py              fetch what is missing, print what there is
    python tools/peers.py --options    the same as options for `giveback bench`, on one line
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import debian
from debian import UnavailableError

from giveback.bench.variants import PEERS, Peer, find_library

SUITE = "bookworm"


def get(peer: Peer) -> Path:
    """The peer's library. UnavailableError, with the reason, if it is not to be had."""
    installed = find_library(peer.library)
    if installed:
        return installed
    folder = debian.unpacked(f"{peer.family}-{SUITE}", SUITE, [peer.package])
    return debian.find(folder, peer.library)


def main() -> None:
    """Fetch them, and say which there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--options", action="store_true", help="print options of `giveback bench`")
    wanted = parser.parse_args()
    options = []
    for peer in PEERS:
        try:
            path = get(peer)
        except UnavailableError as error:
            print(f"SKIPPED {peer.family}: {error}", file=sys.stderr)
            continue
        options.append(f"--library {peer.family}={path}")
        if not wanted.options:
            print(f"{peer.family}: {path}")
    if wanted.options:
        print(" ".join(options))


if __name__ == "__main__":
    main()
