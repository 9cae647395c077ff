#include "release/hazards.h"

#include <string.h>

#define ASK_EVERY_NS UINT64_C(60000000000)

bool gb_is_device_memory(const char *path) {
  static const char *const libraries[] = {"libibverbs.so", "librdmacm.so", "libmlx5.so", "libmlx4.so",
                                          "libucm.so",     "libucp.so",    "libuct.so",  "libfabric.so",
                                          "libmpi.so",     "libmpi_",      "libmpich",   NULL};
  if (strncmp(path, "/dev/infiniband", sizeof "/dev/infiniband" - 1) == 0)
    return true;
  const char *slash = strrchr(path, '/');
  const char *name = slash == NULL ? path : slash + 1;
  for (const char *const *library = libraries; *library != NULL; ++library) {
    if (strncmp(name, *library, strlen(*library)) == 0)
      return true;
  }
  return false;
}

static void notice(void *context, const struct gb_mapping_line *line) {
  struct gb_hazards *hazards = context;
  if (line->mapping.kind == GB_MAPPING_FILE && gb_is_device_memory(line->path))
    hazards->device_memory = true;
}

void gb_hazards_watch(struct gb_hazards *hazards, struct gb_maps *maps) {
  *hazards = (struct gb_hazards){0};
  maps->notice = notice;
  maps->context = hazards;
}

enum gb_status gb_hazards_check(struct gb_hazards *hazards, uint64_t now_ns) {
  if (!hazards->asked || now_ns - hazards->asked_ns >= ASK_EVERY_NS) {
    const enum gb_status status = gb_os_userfaultfd(&hazards->monitored);
    if (status != GB_OK)
      return status;
    hazards->asked = true;
    hazards->asked_ns = now_ns;
  }
  if (hazards->device_memory)
    return GB_RDMA;
  return hazards->monitored ? GB_USERFAULTFD : GB_OK;
}
