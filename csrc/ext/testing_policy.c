#include "ext/testing_policy.h"

#include "heap/batch.h"
#include "release/arena_state.h"
#include "release/budget.h"
#include "release/pace.h"
#include "release/stats.h"

typedef unsigned long long ull;

/* Appends and drops the reference; false with an exception set. */
static bool append(PyObject *list, PyObject *item) {
  const bool done = item != NULL && PyList_Append(list, item) == 0;
  Py_XDECREF(item);
  return done;
}

static PyObject *finish(PyObject *list, bool done) {
  if (done)
    return list;
  Py_XDECREF(list);
  return NULL;
}

/* budget(ppm, [(nanoseconds passed, CPU used)]) -> [wait after each]; what a wait says is not waited for. */
PyObject *gb_testing_budget(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned ppm;
  PyObject *steps;
  if (!PyArg_ParseTuple(arguments, "IO!", &ppm, &PyList_Type, &steps))
    return NULL;
  ull now = 1000;
  struct gb_budget budget;
  gb_budget_begin(&budget, ppm, now);
  PyObject *waits = PyList_New(0);
  bool done = waits != NULL;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(steps); ++i) {
    ull passed;
    ull used;
    done = PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "KK", &passed, &used) != 0;
    if (!done)
      break;
    now += passed;
    gb_budget_charge(&budget, now, used);
    done = append(waits, PyLong_FromUnsignedLongLong(gb_budget_wait(&budget, now)));
  }
  return finish(waits, done);
}

/* duty(ppm, held) -> nanoseconds to leave the lock alone */
PyObject *gb_testing_duty(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned ppm;
  ull held;
  if (!PyArg_ParseTuple(arguments, "IK", &ppm, &held))
    return NULL;
  return PyLong_FromUnsignedLongLong(gb_duty_pause(ppm, held));
}

/* age(base, [(released, refaulted)]) -> [age after each] */
PyObject *gb_testing_age(PyObject *module, PyObject *arguments) {
  (void)module;
  ull base;
  PyObject *steps;
  if (!PyArg_ParseTuple(arguments, "KO!", &base, &PyList_Type, &steps))
    return NULL;
  struct gb_age age;
  gb_age_begin(&age, base);
  PyObject *ages = PyList_New(0);
  bool done = ages != NULL;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(steps); ++i) {
    ull released;
    ull refaulted;
    done = PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "KK", &released, &refaulted) != 0;
    if (!done)
      break;
    gb_age_learn(&age, released, refaulted);
    done = append(ages, PyLong_FromUnsignedLongLong(age.now_ns));
  }
  return finish(ages, done);
}

/* batch(target, fixed, per range, per page, rounds) -> [(ranges, bytes, cost)] of a kernel of such costs,
 * given as many one-page ranges as each batch may have */
PyObject *gb_testing_batch(PyObject *module, PyObject *arguments) {
  (void)module;
  ull target;
  ull fixed;
  ull a_range;
  ull a_page;
  ull pages_a_range;
  unsigned rounds;
  if (!PyArg_ParseTuple(arguments, "KKKKKI", &target, &fixed, &a_range, &a_page, &pages_a_range, &rounds))
    return NULL;
  struct gb_batch batch;
  gb_batch_begin(&batch, target);
  PyObject *batches = PyList_New(0);
  bool done = batches != NULL;
  for (unsigned i = 0; done && i < rounds; ++i) {
    ull ranges = batch.bytes / (4096 * pages_a_range);
    ranges = ranges == 0 ? 1 : ranges;
    ranges = ranges < batch.ranges ? ranges : batch.ranges;
    ull bytes = ranges * pages_a_range * 4096;
    bytes = bytes < batch.bytes ? bytes : batch.bytes;
    const ull cost = fixed + ranges * a_range + bytes / 4096 * a_page;
    done = append(batches, Py_BuildValue("(KKK)", ranges, bytes, cost));
    gb_batch_learn(&batch, (uint32_t)ranges, bytes, cost);
  }
  return finish(batches, done);
}

/* pace(age, [(changed, waiting)]) -> [interval after each] */
PyObject *gb_testing_pace(PyObject *module, PyObject *arguments) {
  (void)module;
  ull age;
  PyObject *steps;
  if (!PyArg_ParseTuple(arguments, "KO!", &age, &PyList_Type, &steps))
    return NULL;
  struct gb_pace pace;
  gb_pace_begin(&pace, age);
  PyObject *intervals = PyList_New(0);
  bool done = intervals != NULL;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(steps); ++i) {
    int changed;
    int waiting;
    done = PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "pp", &changed, &waiting) != 0;
    if (done)
      done = append(intervals, PyLong_FromUnsignedLongLong(gb_pace_next(&pace, changed != 0, waiting != 0)));
  }
  return finish(intervals, done);
}

static enum gb_status add_pages(struct gb_free_pages *pages, PyObject *numbers) {
  enum gb_status status = GB_OK;
  for (Py_ssize_t i = 0; status == GB_OK && i < PyList_GET_SIZE(numbers); ++i) {
    const uintptr_t start = (uintptr_t)PyLong_AsUnsignedLongLong(PyList_GET_ITEM(numbers, i)) * pages->page;
    status = gb_free_pages_add(pages, start, start + pages->page);
  }
  return status;
}

static PyObject *list_of_pages(struct gb_free_pages *pages) {
  PyObject *list = PyList_New(0);
  struct gb_span run = {0};
  bool done = list != NULL;
  for (uintptr_t at = 0; done && gb_free_pages_next(pages, at, (uintptr_t)1 << 40, &run); at = run.end) {
    for (uintptr_t page = run.start; done && page < run.end; page += pages->page)
      done = append(list, PyLong_FromUnsignedLongLong(page / pages->page));
  }
  return finish(list, done);
}

/* turns(age, [(now, fingerprint, [pages free and resident], reached=True)]) -> [(turn, [pages wanted])]: one
 * arena, all of whose wanted pages are released and stay so; or some are out of reach */
PyObject *gb_testing_turns(PyObject *module, PyObject *arguments) {
  (void)module;
  ull age;
  PyObject *steps;
  if (!PyArg_ParseTuple(arguments, "KO!", &age, &PyList_Type, &steps))
    return NULL;
  struct gb_arena_state state;
  struct gb_free_pages seen;
  if (gb_arena_state_init(&state, 1, true, age) != GB_OK || gb_free_pages_init(&seen) != GB_OK)
    return PyErr_NoMemory();
  PyObject *turns = PyList_New(0);
  bool done = turns != NULL;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(steps); ++i) {
    ull now;
    ull fingerprint;
    PyObject *pages;
    int reached = 1;
    done = PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "KKO!|p", &now, &fingerprint, &PyList_Type, &pages,
                            &reached) != 0;
    if (!done)
      break;
    const enum gb_arena_turn turn = gb_arena_turn(&state, fingerprint, now);
    PyObject *wanted = NULL;
    if (turn == GB_TURN_QUIET || turn == GB_TURN_OLD) {
      gb_free_pages_clear(&seen);
      (void)add_pages(&seen, pages);
      (void)gb_arena_state_seen(&state, &seen, turn, false, now);
      wanted = list_of_pages(&state.wanted);
      gb_free_pages_clear(&state.wanted);
      gb_arena_state_looked(&state, true, now);
      if (!reached)
        gb_arena_state_out_of_reach(&state, now);
      gb_arena_state_done(&state);
    } else {
      wanted = PyList_New(0);
    }
    done = wanted != NULL && append(turns, Py_BuildValue("(iN)", (int)turn, wanted));
  }
  gb_arena_state_free(&state);
  gb_free_pages_free(&seen);
  return finish(turns, done);
}

/* percentile([hold ns], share) -> ns */
PyObject *gb_testing_percentile(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *holds;
  double share;
  if (!PyArg_ParseTuple(arguments, "O!d", &PyList_Type, &holds, &share))
    return NULL;
  struct gb_stats *stats = gb_os_alloc(sizeof *stats);
  if (stats == NULL)
    return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(holds); ++i)
    gb_stats_hold(stats, PyLong_AsUnsignedLongLong(PyList_GET_ITEM(holds, i)));
  const ull result = gb_stats_percentile(stats, share);
  gb_os_free(stats, sizeof *stats);
  return PyLong_FromUnsignedLongLong(result);
}

/* page_sets([pages], [pages], start, end) -> (both, either, first without second, first without [start, end),
 * runs of the first) */
PyObject *gb_testing_page_sets(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *left;
  PyObject *right;
  ull start;
  ull end;
  if (!PyArg_ParseTuple(arguments, "O!O!KK", &PyList_Type, &left, &PyList_Type, &right, &start, &end))
    return NULL;
  PyObject *results[4] = {NULL};
  ull runs = 0;
  bool done = true;
  for (unsigned i = 0; i < 4 && done; ++i) {
    struct gb_free_pages first;
    struct gb_free_pages second;
    done = gb_free_pages_init(&first) == GB_OK && gb_free_pages_init(&second) == GB_OK &&
           add_pages(&first, left) == GB_OK && add_pages(&second, right) == GB_OK;
    runs = gb_free_pages_runs(&first);
    if (i == 0)
      gb_free_pages_intersect(&first, &second);
    else if (i == 1)
      done = done && gb_free_pages_unite(&first, &second) == GB_OK;
    else if (i == 2)
      gb_free_pages_subtract(&first, &second);
    else
      gb_free_pages_remove(&first, (uintptr_t)start * first.page, (uintptr_t)end * first.page);
    results[i] = list_of_pages(&first);
    done = done && results[i] != NULL &&
           gb_free_pages_bytes(&first) == (uint64_t)PyList_GET_SIZE(results[i]) * first.page;
    gb_free_pages_free(&first);
    gb_free_pages_free(&second);
  }
  if (!done) {
    for (unsigned i = 0; i < 4; ++i)
      Py_XDECREF(results[i]);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_AssertionError, "the sums of a set differ");
  }
  return Py_BuildValue("(NNNNK)", results[0], results[1], results[2], results[3], runs);
}
