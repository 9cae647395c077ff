#include "heap/locate.h"

#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>

#include "heap/symbols.h"

static void copy_name(char into[GB_NAME_BYTES], const char *name) {
  size_t length = strnlen(name, GB_NAME_BYTES - 1);
  memcpy(into, name, length);
  into[length] = '\0';
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

bool gb_is_libc_path(const char *path) {
  const char *name = file_name(path);
  if (strncmp(name, "libc.so.6", sizeof "libc.so.6" - 1) == 0)
    return true;
  /* Until 2.33 the file itself carried the version: libc-2.31.so. */
  return strncmp(name, "libc-", 5) == 0 && name[5] >= '0' && name[5] <= '9' && strstr(name, ".so") != NULL;
}

/* Its own exported symbol tells that an object is a copy of our preload library, which only passes calls on. */
#define OWN_SYMBOL "giveback_engine"

struct search {
  struct gb_location *location;
  bool libc_found;
  bool provider_found;
  bool same; /* the provider is the libc */
};

static void note_data(const struct dl_phdr_info *info, struct gb_location *location) {
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) == 0)
      continue;
    const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (location->data_start == 0)
      location->data_start = start;
    location->data_end = start + segment->p_memsz;
  }
}

/* The libc that we are linked to, and the first object in the order of loading that defines malloc: that is whose
 * malloc programs call. */
static int visit_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  struct search *search = context;
  const bool is_libc = gb_object_holds(info, (uintptr_t)&gnu_get_libc_version);
  if (is_libc) {
    search->libc_found = true;
    copy_name(search->location->libc, info->dlpi_name);
    note_data(info, search->location);
  }
  if (!search->provider_found && gb_symbol_of_object(info, "malloc") != 0 &&
      gb_symbol_of_object(info, OWN_SYMBOL) == 0) {
    search->provider_found = true;
    search->same = is_libc;
    copy_name(search->location->provider, info->dlpi_name);
  }
  return search->libc_found && search->provider_found;
}

struct census {
  unsigned libcs;
  uintptr_t text_end; /* of the libc counted last */
  bool valgrind;
};

/* Each load of a libc has one run of executable mappings, also if it is the same file twice. */
static bool count_libcs(void *context, const struct gb_mapping_line *line) {
  struct census *census = context;
  if (line->mapping.kind != GB_MAPPING_FILE)
    return true;
  if (strstr(line->path, "/vgpreload_") != NULL)
    census->valgrind = true;
  if (line->executable && gb_is_libc_path(line->path)) {
    if (census->text_end != line->mapping.start)
      ++census->libcs;
    census->text_end = line->mapping.end;
  }
  return true;
}

/* glibc.malloc.hugetlb above 1: malloc maps huge pages by itself (malloc/malloc.c, do_set_hugetlb).
 * Asked of the environment that the tunables were read from: getenv could race with a setenv,
 * and tells what was set later. */
static enum gb_status hugetlb_wanted(bool *wanted) {
  static const char variable[] = "GLIBC_TUNABLES=";
  static const char key[] = "glibc.malloc.hugetlb=";
  *wanted = false;
  char *environment;
  size_t bytes;
  const enum gb_status status = gb_os_read_file("/proc/self/environ", &environment, &bytes);
  if (status == GB_NO_PROC)
    return GB_OK; /* not ours to read any more after setuid(): mp_ and the mappings tell, too */
  if (status != GB_OK)
    return status;
  for (size_t at = 0; at < bytes; at += strlen(environment + at) + 1) {
    if (strncmp(environment + at, variable, sizeof variable - 1) != 0)
      continue;
    const char *value = strstr(environment + at, key);
    *wanted = value != NULL && strtoul(value + sizeof key - 1, NULL, 0) > 1;
    break; /* the dynamic linker takes the first one */
  }
  gb_os_free(environment, bytes);
  return GB_OK;
}

enum gb_status gb_locate_provider(struct gb_location *location) {
  *location = (struct gb_location){0};
  struct search search = {.location = location};
  (void)dl_iterate_phdr(visit_object, &search);
  if (!search.libc_found || !gb_is_libc_path(location->libc))
    return GB_NO_LIBC;
  return search.same ? GB_OK : GB_FOREIGN_ALLOCATOR;
}

enum gb_status gb_locate_check(struct gb_location *location) {
  struct census census = {0};
  enum gb_status status = gb_os_maps_each(count_libcs, &census);
  if (status != GB_OK)
    return status;
  /* Valgrind redirects calls while they are translated: malloc's address stays libc's. */
  if (census.valgrind) {
    copy_name(location->provider, "valgrind");
    return GB_FOREIGN_ALLOCATOR;
  }
  if (census.libcs > 1)
    return GB_SECOND_LIBC;
  bool hugetlb;
  status = hugetlb_wanted(&hugetlb);
  if (status != GB_OK)
    return status;
  return hugetlb ? GB_HUGETLB : GB_OK;
}

enum gb_status gb_locate(struct gb_location *location) {
  const enum gb_status status = gb_locate_provider(location);
  return status == GB_OK ? gb_locate_check(location) : status;
}
