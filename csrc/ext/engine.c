#include "ext/engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"
#include "release/engine.h"

typedef unsigned long long ull;

/* ---- statistics as a dictionary --------------------------------------------------------- */

struct field {
  const char *name;
  size_t offset;
  bool wide; /* 8 bytes, else 4 */
};

#define FIELD(name) {#name, offsetof(struct gb_stats, name), sizeof(((struct gb_stats *)0)->name) == 8}

static const struct field fields[] = {
    FIELD(state),
    FIELD(reason),
    FIELD(pid),
    FIELD(thread),
    FIELD(wake_signal),
    FIELD(wanted),
    FIELD(answered),
    FIELD(answer_bytes),
    FIELD(answer_ns),
    FIELD(cpu_ppm),
    FIELD(duty_ppm),
    FIELD(pause_ns),
    FIELD(age_ns),
    FIELD(started_ns),
    FIELD(wakeups),
    FIELD(passes),
    FIELD(looks),
    FIELD(arenas),
    FIELD(returned_bytes),
    FIELD(returned_top_bytes),
    FIELD(advised_bytes),
    FIELD(release_calls),
    FIELD(release_failures),
    FIELD(release_errno),
    FIELD(refaulted_bytes),
    FIELD(held_bytes),
    FIELD(engine_cpu_ns),
    FIELD(search_cpu_ns),
    FIELD(over_budget),
    FIELD(holds),
    FIELD(held_ns),
    FIELD(hold_max_ns),
    FIELD(holds_cut),
    FIELD(busy),
    FIELD(out_of_reach),
    FIELD(trims),
    FIELD(trim_ns),
    FIELD(trim_max_ns),
    FIELD(kernel_path),
};

/* Takes over the reference to `value`. */
static bool put(PyObject *into, const char *name, PyObject *value) {
  const bool done = value != NULL && PyDict_SetItemString(into, name, value) == 0;
  Py_XDECREF(value);
  return done;
}

/* {status: how often}, without zeros. */
static PyObject *refusals(const struct gb_stats *stats) {
  PyObject *found = PyDict_New();
  for (unsigned i = 0; found != NULL && i < GB_STATS_STATUSES; ++i) {
    if (stats->refused[i] == 0)
      continue;
    PyObject *status = PyLong_FromUnsignedLong(i);
    PyObject *times = PyLong_FromUnsignedLongLong(stats->refused[i]);
    if (status == NULL || times == NULL || PyDict_SetItem(found, status, times) != 0)
      Py_CLEAR(found);
    Py_XDECREF(status);
    Py_XDECREF(times);
  }
  return found;
}

static PyObject *figures_of(const struct gb_stats *stats) {
  PyObject *figures = PyDict_New();
  bool done = figures != NULL;
  for (size_t i = 0; done && i < sizeof fields / sizeof fields[0]; ++i) {
    const void *at = (const char *)stats + fields[i].offset;
    const ull value = fields[i].wide ? *(const uint64_t *)at : *(const uint32_t *)at;
    done = put(figures, fields[i].name, PyLong_FromUnsignedLongLong(value));
  }
  /* Numbers of another process's page may be anything. */
  const enum gb_residency_source residency =
      stats->residency < GB_RESIDENCY_NONE ? (enum gb_residency_source)stats->residency : GB_RESIDENCY_NONE;
  done = done &&
         put(figures, "policy", PyUnicode_FromString(gb_policy_name((enum gb_policy)stats->policy))) &&
         put(figures, "residency", PyUnicode_FromString(gb_os_residency_name(residency))) &&
         put(figures, "hold_p50_ns", PyLong_FromUnsignedLongLong(gb_stats_percentile(stats, 0.50))) &&
         put(figures, "hold_p99_ns", PyLong_FromUnsignedLongLong(gb_stats_percentile(stats, 0.99))) &&
         put(figures, "refused", refusals(stats));
  if (!done)
    Py_CLEAR(figures);
  return figures;
}

static PyObject *answer_with_figures(enum gb_status status, const struct gb_stats *stats) {
  PyObject *figures = figures_of(stats);
  return figures == NULL ? NULL : Py_BuildValue("(iN)", (int)status, figures);
}

/* ---- the engine of this process ------------------------------------------------------------ */

/* Set once, by whoever comes first, always to the same value: one process has one library of that
 * soname, which is never unloaded. release: pairs with the acquire in engine(); what it points at
 * is constant data. */
static const struct gb_engine_api *the_engine;

static const struct gb_engine_api *engine(void) {
  return __atomic_load_n(&the_engine, __ATOMIC_ACQUIRE);
}

/* `message` is of this thread's dlerror, "" if there is none. */
static enum gb_status open_library(const char *path, bool *global, const char **message) {
  /* One that is loaded already, wherever from, is the one: its state must not exist twice. */
  void *library = dlopen(GB_SONAME, RTLD_NOLOAD | RTLD_NOW);
  if (library == NULL)
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    const char *error = dlerror();
    *message = error == NULL ? "" : error;
    return GB_NO_ENGINE;
  }
  const struct gb_engine_api *(*get)(void);
  void *const found = dlsym(library, "giveback_engine");
  *global = found != NULL && found == dlsym(RTLD_DEFAULT, "giveback_engine");
  memcpy(&get, &found, sizeof get);
  const struct gb_engine_api *api = found == NULL ? NULL : get();
  if (api == NULL || api->abi != GB_ENGINE_ABI)
    return GB_OTHER_ENGINE;
  __atomic_store_n(&the_engine, api, __ATOMIC_RELEASE);
  return GB_OK;
}

static PyObject *engine_open(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *path;
  if (!PyUnicode_FSConverter(argument, &path))
    return NULL;
  const char *name = PyBytes_AS_STRING(path);
  const char *message = "";
  bool global = false;
  enum gb_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = open_library(name, &global, &message);
  Py_END_ALLOW_THREADS;
  PyObject *text = PyUnicode_DecodeFSDefault(message);
  Py_DECREF(path);
  return text == NULL ? NULL : Py_BuildValue("(iNO)", (int)status, text, global ? Py_True : Py_False);
}

static PyObject *engine_start(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *settings;
  if (!PyUnicode_FSConverter(argument, &settings))
    return NULL;
  const char *text = PyBytes_AS_STRING(settings);
  char message[GB_CONFIG_MESSAGE] = "";
  enum gb_status status = GB_NO_ENGINE;
  Py_BEGIN_ALLOW_THREADS;
  if (engine() != NULL)
    status = engine()->start(text, message);
  Py_END_ALLOW_THREADS;
  Py_DECREF(settings);
  return Py_BuildValue("(is)", (int)status, message);
}

static PyObject *engine_stop(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  enum gb_status status = GB_NO_ENGINE;
  Py_BEGIN_ALLOW_THREADS;
  if (engine() != NULL)
    status = engine()->stop();
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(status);
}

/* Cannot be interrupted: for a short timeout; see giveback.engine.release for the rest. */
static PyObject *engine_release(PyObject *module, PyObject *argument) {
  (void)module;
  const ull timeout_ns = PyLong_AsUnsignedLongLong(argument);
  if (timeout_ns == (ull)-1 && PyErr_Occurred())
    return NULL;
  struct gb_release_answer answer = {0};
  enum gb_status status = GB_NO_ENGINE;
  Py_BEGIN_ALLOW_THREADS;
  if (engine() != NULL)
    status = engine()->release(timeout_ns, &answer);
  Py_END_ALLOW_THREADS;
  return Py_BuildValue("(iKK)", (int)status, (ull)answer.bytes, (ull)answer.ns);
}

static PyObject *engine_stats(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct gb_stats stats = {0};
  enum gb_status status = GB_NO_ENGINE;
  Py_BEGIN_ALLOW_THREADS;
  if (engine() != NULL)
    status = engine()->stats(&stats);
  Py_END_ALLOW_THREADS;
  return answer_with_figures(status, &stats);
}

static PyObject *parse_config(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *settings;
  if (!PyUnicode_FSConverter(argument, &settings))
    return NULL;
  struct gb_config config;
  gb_config_default(&config);
  char message[GB_CONFIG_MESSAGE];
  const enum gb_status status = gb_config_parse(&config, PyBytes_AS_STRING(settings), message);
  Py_DECREF(settings);
  return Py_BuildValue("(is)", (int)status, message);
}

/* ---- the engine of another process ----------------------------------------------------------- */

static bool is_known(const struct gb_stats *stats) {
  return stats->magic == GB_STATS_MAGIC && stats->version == GB_STATS_VERSION &&
         stats->bytes == sizeof(struct gb_stats);
}

static PyObject *stats_from_file(PyObject *module, PyObject *argument) {
  (void)module;
  int fd;
  if (!PyArg_Parse(argument, "i", &fd))
    return NULL;
  struct gb_stats stats = {0};
  ssize_t got;
  Py_BEGIN_ALLOW_THREADS;
  got = pread(fd, &stats, sizeof stats, 0);
  Py_END_ALLOW_THREADS;
  if (got < 0)
    return PyErr_SetFromErrno(PyExc_OSError);
  if ((size_t)got < sizeof stats || !is_known(&stats)) {
    stats = (struct gb_stats){0};
    return answer_with_figures(GB_OTHER_ENGINE, &stats);
  }
  return answer_with_figures(GB_OK, &stats);
}

/* The page behind a descriptor, writable; NULL with *status if it is not one that we know. */
static struct gb_stats *map_stats(int fd, enum gb_status *status) {
  struct stat file;
  *status = GB_DENIED;
  if (fstat(fd, &file) != 0)
    return NULL;
  *status = GB_OTHER_ENGINE;
  if (file.st_size < (off_t)sizeof(struct gb_stats)) /* beyond its end would be SIGBUS */
    return NULL;
  struct gb_stats *stats = mmap(NULL, sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (stats == MAP_FAILED) {
    *status = errno == ENOMEM ? GB_NO_MEMORY : GB_DENIED;
    return NULL;
  }
  if (!is_known(stats)) {
    (void)munmap(stats, sizeof *stats);
    return NULL;
  }
  *status = GB_OK;
  return stats;
}

static PyObject *request_release(PyObject *module, PyObject *argument) {
  (void)module;
  int fd;
  if (!PyArg_Parse(argument, "i", &fd))
    return NULL;
  enum gb_status status;
  struct gb_stats *stats = map_stats(fd, &status);
  uint32_t request = 0;
  if (stats != NULL) {
    /* Before the caller reads which signal to send: an engine that has not said so by now will see it. */
    request = __atomic_add_fetch(&stats->wanted, 1, __ATOMIC_SEQ_CST);
    gb_os_futex_wake_all(&stats->wanted);
    (void)munmap(stats, sizeof *stats);
  }
  return Py_BuildValue("(iI)", (int)status, (unsigned)request);
}

static PyObject *signal_thread(PyObject *module, PyObject *arguments) {
  (void)module;
  int process;
  int thread;
  int number;
  if (!PyArg_ParseTuple(arguments, "iii", &process, &thread, &number))
    return NULL;
  return PyBool_FromLong(syscall(SYS_tgkill, process, thread, number) == 0);
}

static PyObject *await_release(PyObject *module, PyObject *arguments) {
  (void)module;
  int fd;
  unsigned request;
  ull timeout_ns;
  if (!PyArg_ParseTuple(arguments, "iIK", &fd, &request, &timeout_ns))
    return NULL;
  enum gb_status status;
  ull bytes = 0;
  ull ns = 0;
  struct gb_stats *stats = map_stats(fd, &status);
  if (stats != NULL) {
    uint32_t answered;
    Py_BEGIN_ALLOW_THREADS;
    /* acquire: pairs with the engine's release of `answered`, so that the answer is read behind it. */
    answered = __atomic_load_n(&stats->answered, __ATOMIC_ACQUIRE);
    if ((int32_t)(answered - request) < 0) {
      gb_os_futex_wait(&stats->answered, answered, timeout_ns);
      answered = __atomic_load_n(&stats->answered, __ATOMIC_ACQUIRE);
    }
    Py_END_ALLOW_THREADS;
    if ((int32_t)(answered - request) < 0) {
      status = GB_TIMEOUT;
    } else {
      status = (enum gb_status)__atomic_load_n(&stats->reason, __ATOMIC_RELAXED);
      bytes = __atomic_load_n(&stats->answer_bytes, __ATOMIC_RELAXED);
      ns = __atomic_load_n(&stats->answer_ns, __ATOMIC_RELAXED);
    }
    (void)munmap(stats, sizeof *stats);
  }
  return Py_BuildValue("(iKK)", (int)status, bytes, ns);
}

PyMethodDef gb_py_engine_methods[] = {
    {"engine_open", engine_open, METH_O,
     "engine_open(path) -> (status, message of dlopen, is in front of all libraries): finds the engine of "
     "this process, or loads it from path"},
    {"engine_start", engine_start, METH_O, "engine_start(settings) -> (status, message)"},
    {"engine_stop", engine_stop, METH_NOARGS, "engine_stop() -> status"},
    {"engine_release", engine_release, METH_O, "engine_release(timeout_ns) -> (status, bytes, ns)"},
    {"engine_stats", engine_stats, METH_NOARGS, "engine_stats() -> (status, figures)"},
    {"parse_config", parse_config, METH_O, "parse_config(settings) -> (status, message)"},
    {"stats_from_file", stats_from_file, METH_O, "stats_from_file(fd) -> (status, figures)"},
    {"request_release", request_release, METH_O,
     "request_release(fd) -> (status, number of the request); an engine that waits for a signal still "
     "sleeps"},
    {"signal_thread", signal_thread, METH_VARARGS,
     "signal_thread(pid, thread, signal) -> sent; both as this process sees them"},
    {"await_release", await_release, METH_VARARGS,
     "await_release(fd, request, timeout_ns) -> (status, bytes, ns); may time out early"},
    {0},
};
