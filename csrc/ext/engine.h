/* The engine as Python sees it: the one of this process, through its table of functions, and those of
 * other processes, through their page of statistics.
 *
 * Thread-safe, also without the GIL and in subinterpreters. The GIL is released around whatever may wait.
 */
#ifndef GIVEBACK_EXT_ENGINE_H
#define GIVEBACK_EXT_ENGINE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Functions of giveback._native; ends with an empty entry. */
extern PyMethodDef gb_py_engine_methods[];

#endif
