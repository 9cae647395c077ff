/* C structures as Python dictionaries; keys are the C names. Each returns a new
 * reference, or NULL with an exception set. The GIL must be held. */
#ifndef GIVEBACK_EXT_CONVERT_H
#define GIVEBACK_EXT_CONVERT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "heap/account.h"
#include "heap/verify.h"

PyObject *gb_py_arena(const struct gb_arena_account *arena);
PyObject *gb_py_account(const struct gb_account *account);
PyObject *gb_py_glibc(const struct gb_glibc *glibc);
PyObject *gb_py_pages(const struct gb_page_figures *figures);
PyObject *gb_py_comparison(const struct gb_comparison *comparison);

#endif
