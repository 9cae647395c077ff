/* Who defines a function in this process: asked of the objects' own symbol tables.
 *
 * Problem: dlsym takes the dynamic linker's main lock, throws away the error that the program has not read yet
 * (dlerror), allocates in older glibcs, and gives the address of a non-PIE program's own PLT entry for
 * functions whose address it takes. This takes the lock of dl_iterate_phdr only, which is
 * recursive, so it is safe wherever a program may call malloc.
 *
 * Objects are searched in the order in which they were loaded: the program, what is preloaded, libraries.
 */
#ifndef GIVEBACK_HEAP_SYMBOLS_H
#define GIVEBACK_HEAP_SYMBOLS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Address of the definition of `name` in one object, 0 if it has none. pre: called from dl_iterate_phdr. */
uintptr_t gb_symbol_of_object(const struct dl_phdr_info *object, const char *name);

/* True if `address` lies in a segment of the object. */
bool gb_object_holds(const struct dl_phdr_info *object, uintptr_t address);

/* Address of the first definition of `name` behind the object that holds `behind` (0: in all), or 0. */
uintptr_t gb_symbol_behind(uintptr_t behind, const char *name);

#endif
