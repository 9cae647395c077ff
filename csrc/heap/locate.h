/* Which malloc this process really uses, and where its glibc's data lies.
 *
 * Takes the dynamic linker's lock (dl_iterate_phdr): never while an arena is held,
 * never from a signal handler. Thread-safe.
 */
#ifndef GIVEBACK_HEAP_LOCATE_H
#define GIVEBACK_HEAP_LOCATE_H

#include "base/status.h"
#include "os/os.h"

#define GB_NAME_BYTES 256u

struct gb_location {
  uintptr_t data_start; /* writable segment of the libc in use */
  uintptr_t data_end;
  char libc[GB_NAME_BYTES]; /* path of that libc, cut if longer */
  char provider[GB_NAME_BYTES]; /* object that defines the malloc in use; "" is the program itself */
};

/* GB_OK only if malloc is that of the one glibc in this process. For
 * GB_FOREIGN_ALLOCATOR and GB_SECOND_LIBC the names are filled in all the same. */
enum gb_status gb_locate(struct gb_location *location);

/* The same in two parts. The first asks the dynamic linker, on whatever thread and with little stack; the
 * second, gb_locate_check, reads /proc and needs 16 KB of stack, but takes no lock. */
enum gb_status gb_locate_provider(struct gb_location *location);
enum gb_status gb_locate_check(struct gb_location *location);

/* True if the file name of `path` is one under which glibc's libc is installed. */
bool gb_is_libc_path(const char *path);

#endif
