#include "heap/memory.h"

#include <string.h>
#include <unistd.h>

static bool read_own(const struct gb_memory *memory, uintptr_t address, void *into, size_t bytes) {
  const struct gb_own_memory *own = (const struct gb_own_memory *)(const void *)memory;
  if (address + bytes < address || !gb_os_maps_cover(own->maps, address, address + bytes, false))
    return false;
  memcpy(into, (const void *)address, bytes);
  return true;
}

void gb_own_memory_init(struct gb_own_memory *own, const struct gb_maps *maps) {
  *own = (struct gb_own_memory){.memory = {.read = read_own}, .maps = maps};
}

static bool read_file(const struct gb_memory *memory, uintptr_t address, void *into, size_t bytes) {
  const struct gb_file_memory *file = (const struct gb_file_memory *)(const void *)memory;
  if (address > (uintptr_t)INT64_MAX - bytes)
    return false;
  char *at = into;
  while (bytes > 0) {
    ssize_t got = pread(file->fd, at, bytes, (off_t)address);
    if (got <= 0)
      return false;
    at += got;
    address += (uintptr_t)got;
    bytes -= (size_t)got;
  }
  return true;
}

void gb_file_memory_init(struct gb_file_memory *file, int fd) {
  *file = (struct gb_file_memory){.memory = {.read = read_file}, .fd = fd};
}
