/* giveback._native: the C side as Python sees it. Statuses are returned as numbers,
 * the package turns them into exceptions; words for them come from status_text(). */
#include "ext/convert.h"
#include "ext/engine.h"
#include "release/hazards.h"
#include "release/stats.h"

static PyObject *account(PyObject *module, PyObject *arguments, PyObject *keywords) {
  (void)module;
  static char *names[] = {"hold_ns", "patience_ns", "first_source", NULL};
  unsigned long long hold_ns = GB_DEFAULT_HOLD_NS;
  unsigned long long patience_ns = GB_DEFAULT_PATIENCE_NS;
  int first_source = GB_RESIDENCY_SCAN;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|KKi", names, &hold_ns, &patience_ns, &first_source))
    return NULL;
  const struct gb_account_options options = {
      .hold_ns = hold_ns,
      .patience_ns = patience_ns,
      .first_source = (enum gb_residency_source)first_source,
  };
  struct gb_account taken;
  enum gb_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = gb_account_take(&taken, &options);
  Py_END_ALLOW_THREADS;
  PyObject *figures = gb_py_account(&taken);
  gb_account_free(&taken);
  return figures == NULL ? NULL : Py_BuildValue("(iN)", (int)status, figures);
}

static PyObject *verify(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  const struct gb_account_options options = {
      .hold_ns = GB_DEFAULT_HOLD_NS,
      .patience_ns = GB_DEFAULT_PATIENCE_NS,
      .first_source = GB_RESIDENCY_SCAN,
  };
  struct gb_comparison comparison;
  enum gb_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = gb_verify(&options, GB_VERIFY_LIMITS, &comparison);
  Py_END_ALLOW_THREADS;
  PyObject *figures = gb_py_comparison(&comparison);
  return figures == NULL ? NULL : Py_BuildValue("(iN)", (int)status, figures);
}

static PyObject *features(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct gb_kernel_features found;
  gb_os_probe_features(&found);
  return Py_BuildValue("{s:i,s:i,s:i,s:i,s:i,s:i,s:i}", //
                       "process_madvise", (int)found.process_madvise, //
                       "pidfd_self", (int)found.pidfd_self, //
                       "pagemap_scan", (int)found.pagemap_scan, //
                       "pagemap", (int)found.pagemap, //
                       "mincore", (int)found.mincore, //
                       "madv_free", (int)found.madv_free, //
                       "seccomp", found.seccomp);
}

static PyObject *list_of_addresses(const uintptr_t *addresses, size_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  if (list == NULL)
    return NULL;
  for (size_t i = 0; i < count; ++i) {
    PyObject *address = PyLong_FromUnsignedLongLong(addresses[i]);
    if (address == NULL) {
      Py_DECREF(list);
      return NULL;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, address);
  }
  return list;
}

/* derive_from_file(fd, data_start, data_end): the glibc in another process's memory. */
static PyObject *derive_from_file(PyObject *module, PyObject *arguments) {
  (void)module;
  int fd;
  unsigned long long start;
  unsigned long long end;
  if (!PyArg_ParseTuple(arguments, "iKK", &fd, &start, &end))
    return NULL;
  enum { CAPACITY = 4096 };
  uintptr_t *arenas = gb_os_alloc(CAPACITY * sizeof *arenas);
  if (arenas == NULL)
    return PyErr_NoMemory();
  struct gb_glibc glibc = {0};
  size_t count = 0;
  enum gb_status status;
  Py_BEGIN_ALLOW_THREADS;
  struct gb_file_memory file;
  gb_file_memory_init(&file, fd);
  status = gb_derive(&file.memory, start, end, &glibc);
  if (status == GB_OK)
    status = gb_arenas(&file.memory, &glibc, arenas, CAPACITY, &count);
  Py_END_ALLOW_THREADS;
  PyObject *list = list_of_addresses(arenas, count < CAPACITY ? count : CAPACITY);
  gb_os_free(arenas, CAPACITY * sizeof *arenas);
  PyObject *found = list == NULL ? NULL : gb_py_glibc(&glibc);
  if (found == NULL) {
    Py_XDECREF(list);
    return NULL;
  }
  return Py_BuildValue("(iNN)", (int)status, found, list);
}

static PyObject *status_words(PyObject *module, PyObject *argument) {
  (void)module;
  const long status = PyLong_AsLong(argument);
  if (status == -1 && PyErr_Occurred())
    return NULL;
  if (status < GB_OK || status > GB_DOUBT_FIGURES)
    return PyErr_Format(PyExc_ValueError, "%ld is not a status", status);
  return Py_BuildValue("(sz)", gb_status_text((enum gb_status)status),
                       gb_status_remedy((enum gb_status)status));
}

static PyObject *is_device_memory(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *path;
  if (!PyUnicode_FSConverter(argument, &path))
    return NULL;
  const bool found = gb_is_device_memory(PyBytes_AS_STRING(path));
  Py_DECREF(path);
  return PyBool_FromLong(found);
}

static PyMethodDef methods[] = {
    {"account", (PyCFunction)(void (*)(void))account, METH_VARARGS | METH_KEYWORDS,
     "account(hold_ns=..., patience_ns=..., first_source=0) -> (status, figures)"},
    {"verify", verify, METH_NOARGS, "verify() -> (status, comparison with mallinfo)"},
    {"features", features, METH_NOARGS, "features() -> what this kernel can do, tried on a page of ours"},
    {"derive_from_file", derive_from_file, METH_VARARGS,
     "derive_from_file(fd, data_start, data_end) -> (status, glibc, arena addresses)"},
    {"is_device_memory", is_device_memory, METH_O,
     "is_device_memory(path) -> a library or device that registers memory for RDMA"},
    {"status_words", status_words, METH_O, "status_words(status) -> (text, remedy or None)"},
    {0},
};

static int execute(PyObject *module) {
  static const struct {
    const char *name;
    int value;
  } constants[] = {
      {"OK", GB_OK},
      {"BUSY", GB_BUSY},
      {"DENIED", GB_DENIED},
      {"NO_PROC", GB_NO_PROC},
      {"NO_MEMORY", GB_NO_MEMORY},
      {"NO_RESIDENCY", GB_NO_RESIDENCY},
      {"BAD_CONFIG", GB_BAD_CONFIG},
      {"NO_THREAD", GB_NO_THREAD},
      {"NO_ENGINE", GB_NO_ENGINE},
      {"RUNNING", GB_RUNNING},
      {"TIMEOUT", GB_TIMEOUT},
      {"OFF", GB_OFF},
      {"OTHER_ENGINE", GB_OTHER_ENGINE},
      {"SANDBOX", GB_SANDBOX},
      {"FOREIGN_ALLOCATOR", GB_FOREIGN_ALLOCATOR},
      {"NO_LIBC", GB_NO_LIBC},
      {"SECOND_LIBC", GB_SECOND_LIBC},
      {"UNKNOWN_LAYOUT", GB_UNKNOWN_LAYOUT},
      {"HUGETLB", GB_HUGETLB},
      {"DOUBT_FIRST", GB_DOUBT_ARENA},
      {"DOUBT_ARENA", GB_DOUBT_ARENA},
      {"DOUBT_HEAP", GB_DOUBT_HEAP},
      {"DOUBT_TOP", GB_DOUBT_TOP},
      {"DOUBT_LINK", GB_DOUBT_LINK},
      {"DOUBT_CHUNK", GB_DOUBT_CHUNK},
      {"DOUBT_FIGURES", GB_DOUBT_FIGURES},
      {"DEFAULT_HOLD_NS", (int)GB_DEFAULT_HOLD_NS},
      {"DEFAULT_PATIENCE_NS", (int)GB_DEFAULT_PATIENCE_NS},
      {"ENGINE_NONE", GB_ENGINE_NONE},
      {"ENGINE_RUNS", GB_ENGINE_RUNS},
      {"ENGINE_REFUSES", GB_ENGINE_REFUSES},
      {"FEATURE_NO", GB_FEATURE_NO},
      {"FEATURE_YES", GB_FEATURE_YES},
      {"FEATURE_UNTRIED", GB_FEATURE_UNTRIED},
  };
  for (size_t i = 0; i < sizeof constants / sizeof constants[0]; ++i) {
    if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) != 0)
      return -1;
  }
  return PyModule_AddFunctions(module, gb_py_engine_methods);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "giveback._native",
    .m_doc = "Private: use the giveback package.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void); // NOLINT(misc-use-internal-linkage): looked up by name
PyMODINIT_FUNC PyInit__native(void) {
  return PyModuleDef_Init(&definition);
}
