/* Reading memory that is only believed to be there.
 *
 * Deriving the layout starts from guesses. Through this interface a wrong guess is
 * a failed read and not a fault, and the same code serves a process read from
 * outside, whatever the way its memory is read.
 */
#ifndef GIVEBACK_HEAP_MEMORY_H
#define GIVEBACK_HEAP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/os.h"

struct gb_memory {
  /* Copies [address, address + bytes) to `into`; false, and `into` undefined, if
   * any byte of it cannot be read. */
  bool (*read)(const struct gb_memory *memory, uintptr_t address, void *into, size_t bytes);
};

static inline bool gb_read_word(const struct gb_memory *memory, uintptr_t address, uint64_t *word) {
  return memory->read(memory, address, word, sizeof *word);
}

/* This process, checked against a snapshot of its mappings. */
struct gb_own_memory {
  struct gb_memory memory;
  const struct gb_maps *maps;
};
void gb_own_memory_init(struct gb_own_memory *own, const struct gb_maps *maps);

/* Another process, through a descriptor of its /proc/PID/mem. Reading never changes it. */
struct gb_file_memory {
  struct gb_memory memory;
  int fd;
};
void gb_file_memory_init(struct gb_file_memory *file, int fd);

#endif
