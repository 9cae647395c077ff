/* /proc/self/maps without stdio: fixed buffers, raw reads, no allocation while a
 * line is being parsed. One read() of the file is consistent in itself; the
 * whole is not, which is why the heap code checks what it finds against the
 * arena's own fields under the arena's lock. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/os.h"

/* Room for one line: the fixed part, PATH_MAX and " (deleted)". */
#define LINE_BYTES 4352u
/* 64 bytes a mapping or more: a page holds the first few hundred lines' worth. */
#define FIRST_ENTRIES 512u

struct parser {
  const char *at;
  const char *end;
};

static uint64_t parse_number(struct parser *text, unsigned base) {
  uint64_t value = 0;
  for (; text->at < text->end; ++text->at) {
    char c = *text->at;
    unsigned digit;
    if (c >= '0' && c <= '9')
      digit = (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = (unsigned)(c - 'a') + 10;
    else
      break;
    if (digit >= base)
      break;
    value = value * base + digit;
  }
  return value;
}

static bool skip(struct parser *text, char expected) {
  if (text->at >= text->end || *text->at != expected)
    return false;
  ++text->at;
  return true;
}

static bool starts_with(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static enum gb_mapping_kind kind_of(const char *path, uint64_t inode) {
  if (starts_with(path, "/anon_hugepage") || starts_with(path, "/memfd:anon_hugepage"))
    return GB_MAPPING_HUGETLB;
  if (strcmp(path, "[heap]") == 0)
    return GB_MAPPING_BRK;
  /* A name given with PR_SET_VMA_ANON_NAME, as glibc >= 2.38 can do. */
  if (starts_with(path, "[anon:"))
    return GB_MAPPING_ANONYMOUS;
  if (path[0] == '[')
    return GB_MAPPING_SPECIAL;
  return inode != 0 || path[0] != '\0' ? GB_MAPPING_FILE : GB_MAPPING_ANONYMOUS;
}

/* `line` ends with a NUL in place of its newline. */
static bool parse_line(const char *line, size_t length, struct gb_mapping_line *out) {
  struct parser text = {.at = line, .end = line + length};
  out->mapping.start = (uintptr_t)parse_number(&text, 16);
  if (!skip(&text, '-'))
    return false;
  out->mapping.end = (uintptr_t)parse_number(&text, 16);
  if (!skip(&text, ' ') || text.end - text.at < 5)
    return false;
  out->mapping.readable = text.at[0] == 'r';
  out->mapping.writable = text.at[1] == 'w';
  out->executable = text.at[2] == 'x';
  text.at += 4;
  (void)skip(&text, ' ');
  (void)parse_number(&text, 16);
  (void)skip(&text, ' ');
  uint64_t major_number = parse_number(&text, 16);
  (void)skip(&text, ':');
  uint64_t minor_number = parse_number(&text, 16);
  out->device = (major_number << 32) | minor_number;
  (void)skip(&text, ' ');
  out->inode = parse_number(&text, 10);
  while (skip(&text, ' ')) {
  }
  out->path = text.at;
  out->mapping.kind = kind_of(text.at, out->inode);
  return out->mapping.start < out->mapping.end;
}

enum gb_status gb_os_maps_each(bool (*each)(void *context, const struct gb_mapping_line *line),
                               void *context) {
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return GB_NO_PROC;

  char buffer[2 * LINE_BYTES];
  size_t filled = 0;
  bool wanted = true;
  size_t lines = 0;
  ssize_t got = 0;
  while (wanted) {
    do {
      got = read(fd, buffer + filled, sizeof buffer - 1 - filled);
    } while (got < 0 && errno == EINTR);
    if (got <= 0)
      break;
    filled += (size_t)got;

    char *line = buffer;
    char *newline;
    while (wanted && (newline = memchr(line, '\n', filled - (size_t)(line - buffer))) != NULL) {
      *newline = '\0';
      struct gb_mapping_line parsed;
      if (parse_line(line, (size_t)(newline - line), &parsed)) {
        ++lines;
        wanted = each(context, &parsed);
      }
      line = newline + 1;
    }
    filled -= (size_t)(line - buffer);
    memmove(buffer, line, filled);
  }
  (void)close(fd);
  /* A read that failed, or a line that is no line: what we have is not all. */
  const bool whole = !wanted || (got == 0 && filled == 0);
  return whole && lines > 0 ? GB_OK : GB_NO_PROC;
}

struct collection {
  struct gb_maps *maps;
  enum gb_status status;
};

static bool collect(void *context, const struct gb_mapping_line *line) {
  struct collection *collection = context;
  struct gb_maps *maps = collection->maps;
  if (maps->count == maps->capacity) {
    size_t capacity = maps->capacity == 0 ? FIRST_ENTRIES : maps->capacity * 2;
    void *grown =
        gb_os_grow(maps->entries, maps->capacity * sizeof *maps->entries, capacity * sizeof *maps->entries);
    if (grown == NULL) {
      collection->status = GB_NO_MEMORY;
      return false;
    }
    maps->entries = grown;
    maps->capacity = capacity;
  }
  if (maps->notice != NULL)
    maps->notice(maps->context, line);
  maps->entries[maps->count++] = line->mapping;
  return true;
}

enum gb_status gb_os_maps_read(struct gb_maps *maps) {
  struct collection collection = {.maps = maps, .status = GB_OK};
  maps->count = 0;
  enum gb_status status = gb_os_maps_each(collect, &collection);
  return status != GB_OK ? status : collection.status;
}

void gb_os_maps_free(struct gb_maps *maps) {
  gb_os_free(maps->entries, maps->capacity * sizeof *maps->entries);
  *maps = (struct gb_maps){0};
}

const struct gb_mapping *gb_os_maps_find(const struct gb_maps *maps, uintptr_t address) {
  size_t low = 0;
  size_t high = maps->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (maps->entries[middle].end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == maps->count || maps->entries[low].start > address)
    return NULL;
  return &maps->entries[low];
}

bool gb_os_maps_cover(const struct gb_maps *maps, uintptr_t start, uintptr_t end, bool writable) {
  if (start > end)
    return false;
  while (start < end) {
    const struct gb_mapping *mapping = gb_os_maps_find(maps, start);
    if (mapping == NULL || !mapping->readable)
      return false;
    if (writable && (!mapping->writable || mapping->kind == GB_MAPPING_FILE))
      return false;
    start = mapping->end;
  }
  return true;
}
