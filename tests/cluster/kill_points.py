"""Kills of a process at a chosen write: a library that counts the writes of a process below a folder.

Loaded by LD_PRELOAD, it counts every call that changes a file below the folder. When the count reaches the
chosen number, it ends the process with SIGKILL: before the call if the number is even, else after half of the
bytes of a write.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

__all__ = ["KILL_AT_VARIABLE", "KILL_FOLDER_VARIABLE", "arm", "build_library", "read_count"]

KILL_AT_VARIABLE = "KILL_POINTS_AT"
KILL_FOLDER_VARIABLE = "KILL_POINTS_FOLDER"
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long count = 0, kill_at = 0;
static char folder[PATH_MAX] = "";

void kill_points_arm(long at, const char *path) {
    strncpy(folder, path, sizeof folder - 1);
    kill_at = at;
    __atomic_store_n(&count, 0, __ATOMIC_SEQ_CST);
}
long kill_points_count(void) { return count; }

__attribute__((constructor)) static void start(void) {
    const char *at = getenv("KILL_POINTS_AT"), *path = getenv("KILL_POINTS_FOLDER");
    if (at && path) {
        kill_points_arm(atol(at), path);
        /* Children are not killed: Ray's workers have checkpoints of their own. */
        unsetenv("KILL_POINTS_AT");
        unsetenv("LD_PRELOAD");
    }
}

__attribute__((destructor)) static void finish(void) {
    char path[PATH_MAX + 8];
    long counted = count;
    if (!folder[0]) return;
    snprintf(path, sizeof path, "%s.writes", folder);
    folder[0] = 0;
    FILE *file = fopen(path, "w");
    if (file) { fprintf(file, "%ld", counted); fclose(file); }
}

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
static int is_below(const char *path) {
    return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0;
}
static int is_descriptor_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}
/* Whether this is the chosen call. */
static int hit(void) { return __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == kill_at; }

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name);

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t)
    if (is_descriptor_below(fd) && hit()) { if (kill_at % 2) real(fd, data, size / 2); die(); }
    return real(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
    if (is_descriptor_below(fd) && hit()) { if (kill_at % 2) real(fd, data, size / 2, at); die(); }
    return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
    if (is_descriptor_below(fd) && hit()) { if (kill_at % 2) real(fd, data, size / 2, at); die(); }
    return real(fd, data, size, at);
}
#define ON_PATH(type, name, parameters, arguments, path) \
    type name parameters { \
        static type (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        if (is_below(path) && hit()) die(); \
        return real arguments; \
    }
#define ON_DESCRIPTOR(name, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        if (is_descriptor_below(fd) && hit()) die(); \
        return real arguments; \
    }
ON_PATH(int, rename, (const char *from, const char *to), (from, to), to)
ON_PATH(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), to)
ON_PATH(int, unlink, (const char *path), (path), path)
ON_PATH(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), path)
ON_PATH(int, rmdir, (const char *path), (path), path)
ON_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode), path)
ON_PATH(int, link, (const char *from, const char *to), (from, to), to)
ON_DESCRIPTOR(ftruncate, (int fd, off_t size), (fd, size))
ON_DESCRIPTOR(ftruncate64, (int fd, off64_t size), (fd, size))
ON_DESCRIPTOR(fsync, (int fd), (fd))
ON_DESCRIPTOR(fdatasync, (int fd), (fd))
"""


def build_library(folder: Path) -> Path | None:
    """The library, built in `folder`; None without a C compiler."""
    if shutil.which("cc") is None:
        return None
    source, library = folder / "kill_points.c", folder / "kill_points.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def arm(kill_at: int, folder: Path) -> None:
    """Count the writes of this process below `folder` from 0; end it at number `kill_at` (0: never).

    The process must have been started with the library in LD_PRELOAD.
    """
    ctypes.CDLL(None).kill_points_arm(ctypes.c_long(kill_at), str(folder).encode())


def read_count() -> int:
    """The writes of this process since `arm`; a program stores them in `<folder>.writes` at its end."""
    counted = ctypes.CDLL(None).kill_points_count
    counted.restype = ctypes.c_long
    return int(counted())
