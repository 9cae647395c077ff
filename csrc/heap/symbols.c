#include "heap/symbols.h"

#include <string.h>

/* What an object's dynamic section says of its symbols. */
struct tables {
  const ElfW(Sym) * symbols;
  const char *names;
  const uint32_t *gnu_hash;
  const uint32_t *hash;
};

/* glibc writes the addresses of most objects into the dynamic section when it loads them; the vDSO's, and all of
 * some machines', stay relative. */
static uintptr_t relocated(const struct dl_phdr_info *object, uintptr_t value) {
  return value < object->dlpi_addr ? object->dlpi_addr + value : value;
}

static bool read_tables(const struct dl_phdr_info *object, struct tables *tables) {
  *tables = (struct tables){0};
  const ElfW(Dyn) *entry = NULL;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
  }
  for (; entry != NULL && entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t address = relocated(object, entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB)
      tables->symbols = (const ElfW(Sym) *)address;
    else if (entry->d_tag == DT_STRTAB)
      tables->names = (const char *)address;
    else if (entry->d_tag == DT_GNU_HASH)
      tables->gnu_hash = (const uint32_t *)address;
    else if (entry->d_tag == DT_HASH)
      tables->hash = (const uint32_t *)address;
  }
  return tables->symbols != NULL && tables->names != NULL;
}

/* Defined, not only called: the program's PLT entry for a function whose address it takes has a value, but no
 * section. */
static bool is_definition(const struct tables *tables, uint32_t index, const char *name) {
  const ElfW(Sym) *symbol = &tables->symbols[index];
  return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
         strcmp(tables->names + symbol->st_name, name) == 0;
}

static uint32_t look_up_gnu(const struct tables *tables, const char *name) {
  const uint32_t buckets_count = tables->gnu_hash[0];
  const uint32_t first = tables->gnu_hash[1];
  const uint32_t bloom_words = tables->gnu_hash[2];
  const uint32_t *buckets =
      tables->gnu_hash + 4 + (size_t)bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chains = buckets + buckets_count;
  uint32_t hash = 5381;
  for (const char *at = name; *at != '\0'; ++at)
    hash = hash * 33 + (unsigned char)*at;
  if (buckets_count == 0)
    return 0;
  uint32_t index = buckets[hash % buckets_count];
  if (index < first)
    return 0;
  for (;; ++index) {
    const uint32_t entry = chains[index - first];
    if ((entry | 1) == (hash | 1) && is_definition(tables, index, name))
      return index;
    if ((entry & 1) != 0)
      return 0;
  }
}

static uint32_t look_up_old(const struct tables *tables, const char *name) {
  const uint32_t symbols_count = tables->hash[1];
  for (uint32_t index = 1; index < symbols_count; ++index) {
    if (is_definition(tables, index, name))
      return index;
  }
  return 0;
}

uintptr_t gb_symbol_of_object(const struct dl_phdr_info *object, const char *name) {
  struct tables tables;
  if (!read_tables(object, &tables))
    return 0;
  uint32_t index = 0;
  if (tables.gnu_hash != NULL)
    index = look_up_gnu(&tables, name);
  else if (tables.hash != NULL)
    index = look_up_old(&tables, name);
  return index == 0 ? 0 : object->dlpi_addr + tables.symbols[index].st_value;
}

bool gb_object_holds(const struct dl_phdr_info *object, uintptr_t address) {
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && address >= start && address - start < segment->p_memsz)
      return true;
  }
  return false;
}

struct search {
  uintptr_t behind;
  const char *name;
  bool reached;
  uintptr_t found;
};

static int visit(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  struct search *search = context;
  if (!search->reached) {
    search->reached = gb_object_holds(object, search->behind);
    return 0;
  }
  search->found = gb_symbol_of_object(object, search->name);
  return search->found != 0;
}

uintptr_t gb_symbol_behind(uintptr_t behind, const char *name) {
  struct search search = {.behind = behind, .name = name, .reached = behind == 0};
  (void)dl_iterate_phdr(visit, &search);
  return search.found;
}
