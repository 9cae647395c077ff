"""`giveback bench`: real programs, run on plain glibc, under giveback and on its peers.

`variants` says how a program is run, `runs` runs it and looks at it from outside, `scenarios` has
one module for each question that is asked, `harness` interleaves the runs, `decide` compares what
they showed with the goals, and `document`, `table` and `plot` show it.
"""
