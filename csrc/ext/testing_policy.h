/* Doors to what is pure: budgets, ages, batches, turns. Each takes the whole history, so that the test owns
 * the clock. */
#ifndef GIVEBACK_EXT_TESTING_POLICY_H
#define GIVEBACK_EXT_TESTING_POLICY_H

#include "ext/convert.h"

PyObject *gb_testing_budget(PyObject *module, PyObject *arguments);
PyObject *gb_testing_duty(PyObject *module, PyObject *arguments);
PyObject *gb_testing_age(PyObject *module, PyObject *arguments);
PyObject *gb_testing_batch(PyObject *module, PyObject *arguments);
PyObject *gb_testing_pace(PyObject *module, PyObject *arguments);
PyObject *gb_testing_turns(PyObject *module, PyObject *arguments);
PyObject *gb_testing_percentile(PyObject *module, PyObject *arguments);
PyObject *gb_testing_page_sets(PyObject *module, PyObject *arguments);

#endif
