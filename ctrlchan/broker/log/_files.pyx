"""Files of a log directory, changed without the GIL. ``checkpoints.py`` does the same for code that has it."""

from libc.errno cimport EINTR, ENAMETOOLONG, ENOENT, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY, open
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, fsync, ftruncate, pwrite, unlink, write

cdef extern from "<stdio.h>":
    int c_rename "rename"(const char* old, const char* new) nogil

cdef extern from *:
    """
    #include <sys/stat.h>
    #include <stdint.h>
    static inline int64_t modified_ns(const struct stat *status) {
    #ifdef __APPLE__
        return status->st_mtimespec.tv_sec * 1000000000LL + status->st_mtimespec.tv_nsec;
    #else
        return status->st_mtim.tv_sec * 1000000000LL + status->st_mtim.tv_nsec;
    #endif
    }
    """
    int64_t modified_ns(const struct_stat*) nogil

cdef enum:
    # With the suffix .tmp
    TEMPORARY_BYTES = 4360
    FILE_MODE = 0o644


# NULL but in a simulation
cdef DiskFault disk_fault = NULL
cdef void* fault_context = NULL


cdef void set_disk_fault(DiskFault fault, void* context) noexcept nogil:
    global disk_fault, fault_context
    disk_fault, fault_context = fault, context


cdef inline int fault_of(int64_t* size) noexcept nogil:
    return 0 if disk_fault == NULL else disk_fault(fault_context, size)


cdef int check_disk() noexcept nogil:
    cdef int64_t size = 0
    return fault_of(&size)


cdef int write_at(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    cdef ssize_t put
    cdef int fault = fault_of(&size)
    while size > 0:
        put = pwrite(fd, data, size, position)
        if put >= 0:
            data, size, position = data + put, size - put, position + put
        elif errno != EINTR:
            return errno
    return fault


cdef int write_all(int fd, const uint8_t* data, int64_t size) noexcept nogil:
    cdef ssize_t put
    cdef int fault = fault_of(&size)
    while size > 0:
        put = write(fd, data, size)
        if put >= 0:
            data, size = data + put, size - put
        elif errno != EINTR:
            return errno
    return fault


cdef int resize_file(int fd, int64_t size) noexcept nogil:
    cdef int fault = check_disk()
    if fault != 0:
        return fault
    return errno if ftruncate(fd, size) != 0 else 0


cdef int flush_file(int fd) noexcept nogil:
    cdef int fault = check_disk()
    if fault != 0:
        return fault
    return errno if fsync(fd) != 0 else 0


cdef int flush_and_close(int fd, int error) noexcept nogil:
    """Flush and close a file; return ``error``, or the first error of this."""
    if error == 0:
        error = flush_file(fd)
    if close(fd) != 0 and error == 0:
        error = errno
    return error


cdef int replace_file(const char* folder, const char* name, const char* data, int64_t size) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef char temporary[TEMPORARY_BYTES]
    cdef int fd, error
    if snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES:
        return ENAMETOOLONG
    snprintf(temporary, TEMPORARY_BYTES, "%s.tmp", path)
    error = check_disk()
    if error != 0:
        return error
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, FILE_MODE)
    if fd < 0:
        return errno
    error = flush_and_close(fd, write_all(fd, <const uint8_t*>data, size))
    if error == 0:
        error = rename_path(temporary, path)
    return flush_folder(folder) if error == 0 else error


cdef int flush_folder(const char* folder) noexcept nogil:
    cdef int fd = open(folder, O_RDONLY | O_CLOEXEC)
    return errno if fd < 0 else flush_and_close(fd, 0)


cdef int rename_path(const char* old, const char* new) noexcept nogil:
    cdef int fault = check_disk()
    if fault != 0:
        return fault
    return errno if c_rename(old, new) != 0 else 0


cdef int delete_file(const char* path) noexcept nogil:
    cdef int fault = check_disk()
    if fault != 0:
        return fault
    return errno if unlink(path) != 0 and errno != ENOENT else 0


cdef int modification_time(int fd, int64_t* ns) noexcept nogil:
    cdef struct_stat status
    if fstat(fd, &status) != 0:
        return errno
    ns[0] = modified_ns(&status)
    return 0
