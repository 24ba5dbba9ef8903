/* A file system that becomes read-only while files on it are open, as after an error of the disk.
 *
 * Preloaded into a process: once the file READ_ONLY_SINCE exists, nothing below READ_ONLY_BELOW can
 * be written, made, renamed or removed any more. No mount can be turned so under open files.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int denied(const char *path) {
  const char *since = getenv("READ_ONLY_SINCE"), *below = getenv("READ_ONLY_BELOW");
  if (since == NULL || below == NULL || strncmp(path, below, strlen(below)) != 0 ||
      syscall(SYS_faccessat, AT_FDCWD, since, F_OK) != 0)
    return 0;
  errno = EROFS;
  return 1;
}

static int denied_open(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return denied(path);
}

#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define OPEN(at, path, flags)                           \
  va_list rest;                                         \
  va_start(rest, flags);                                \
  int mode = va_arg(rest, int);                         \
  va_end(rest);                                         \
  if ((flags & WRITES) && denied(path)) return -1;      \
  return syscall(SYS_openat, at, path, flags, mode);

int open(const char *path, int flags, ...) { OPEN(AT_FDCWD, path, flags) }
int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD, path, flags) }
int openat(int at, const char *path, int flags, ...) { OPEN(at, path, flags) }
int openat64(int at, const char *path, int flags, ...) { OPEN(at, path, flags) }

ssize_t write(int fd, const void *from, size_t count) {
  return denied_open(fd) ? -1 : syscall(SYS_write, fd, from, count);
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
  return denied_open(fd) ? -1 : syscall(SYS_pwrite64, fd, from, count, at);
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
  return denied_open(fd) ? -1 : syscall(SYS_pwrite64, fd, from, count, at);
}
int ftruncate(int fd, off_t length) {
  return denied_open(fd) ? -1 : syscall(SYS_ftruncate, fd, length);
}
int ftruncate64(int fd, off64_t length) {
  return denied_open(fd) ? -1 : syscall(SYS_ftruncate, fd, length);
}
int rename(const char *from, const char *to) {
  return denied(to) ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int unlink(const char *path) {
  return denied(path) ? -1 : syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
int mkdir(const char *path, mode_t mode) {
  return denied(path) ? -1 : syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
