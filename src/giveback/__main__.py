"""python -m giveback."""

from .cli import main

main()
