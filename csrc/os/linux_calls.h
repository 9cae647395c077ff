/* Numbers of the kernel's interface that the headers of older build machines lack. */
#ifndef GIVEBACK_OS_LINUX_CALLS_H
#define GIVEBACK_OS_LINUX_CALLS_H

#include <sys/syscall.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_RANGE_UNSHARE_FLAG 2u /* Linux 5.9 */
/* Linux 6.14: names the calling process without a descriptor (include/uapi/linux/pidfd.h). */
#define PIDFD_SELF_PROCESS (-10001)

#endif
