"""What must be there before anything can be set up; says what to install otherwise.

Runs with whatever Python is the default, so its syntax is kept old.
"""

import shutil
import sys

PROBLEMS = []
if sys.version_info < (3, 11):
    PROBLEMS.append(
        "Python 3.11 or newer is needed, this is %d.%d: make PYTHON=python3.11 ..."
        % sys.version_info[:2]
    )
if not sys.platform.startswith("linux"):
    PROBLEMS.append("giveback works on Linux with glibc only")
if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
    PROBLEMS.append("a C compiler is needed: apt-get install gcc libc6-dev")
try:
    import ensurepip  # noqa: F401
except ImportError:
    PROBLEMS.append("Python's venv module is needed: apt-get install python3-venv")

for problem in PROBLEMS:
    sys.stderr.write("giveback: %s\n" % problem)
sys.exit(1 if PROBLEMS else 0)
