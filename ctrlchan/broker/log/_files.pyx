"""Files of a log directory, read and changed without the GIL. ``checkpoints.py`` does the same for code that has it."""

from libc.errno cimport EINTR, EIO, ENAMETOOLONG, ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport strlen
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, open
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, fsync, ftruncate, pread, pwrite, unlink, write

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

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    /* The size of the file stays, so a crash leaves no zeros behind its records. */
    static inline int reserve_blocks(int fd, int64_t size) {
    #if defined(__linux__) && defined(FALLOC_FL_KEEP_SIZE)
        while (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size) != 0) {
            if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return 0;
            if (errno != EINTR) return errno;
        }
    #endif
        return 0;
    }
    """
    int reserve_blocks(int fd, int64_t size) nogil

cdef enum:
    # With the suffix .tmp
    TEMPORARY_BYTES = 4360
    FILE_MODE = 0o644
    # The kinds of a segment's files
    KINDS = 4

cdef const char* kinds[KINDS]
kinds[0], kinds[1], kinds[2], kinds[3] = b".log", b".index", b".timeindex", b".txnindex"

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


cdef int read_at(int fd, uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    cdef ssize_t got
    while size > 0:
        got = pread(fd, data, size, position)
        if got > 0:
            data, size, position = data + got, size - got, position + got
        elif got == 0:
            return EIO
        elif errno != EINTR:
            return errno
    return 0


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


cdef int reserve_file(int fd, int64_t size) noexcept nogil:
    cdef int fault = check_disk()
    return fault if fault != 0 else reserve_blocks(fd, size)


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


cdef int modification_time(int fd, int64_t* ns) noexcept nogil:
    cdef struct_stat status
    if fstat(fd, &status) != 0:
        return errno
    ns[0] = modified_ns(&status)
    return 0


cdef int set_path(SegmentName* name, const char* folder, int64_t base_offset) noexcept nogil:
    cdef size_t size = strlen(folder) + 22
    cdef char* path = <char*>malloc(size)
    if path == NULL:
        return ENOMEM
    snprintf(path, size, "%s/%020lld", folder, <long long>base_offset)
    free(name.path)
    name.path = path
    return 0


cdef int open_file(const SegmentName* name, const char* kind, int flags, int* fd, int64_t* size) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef struct_stat status
    cdef int fault = check_disk() if flags & O_CREAT else 0
    if fault != 0:
        return fault
    snprintf(path, PATH_BYTES, "%s%s%s", name.path, kind, name.suffix)
    fd[0] = open(path, O_RDWR | O_CLOEXEC | flags, FILE_MODE)
    if fd[0] < 0 or fstat(fd[0], &status) != 0:
        return errno
    size[0] = status.st_size
    return 0


cdef int rename_file(
    const SegmentName* name, const char* kind, const char* old, const char* suffix
) noexcept nogil:
    cdef char before[PATH_BYTES]
    cdef char after[PATH_BYTES]
    cdef int error
    snprintf(before, PATH_BYTES, "%s%s%s", name.path, kind, old)
    snprintf(after, PATH_BYTES, "%s%s%s", name.path, kind, suffix)
    error = rename_path(before, after)
    return 0 if error == ENOENT else error


cdef int change_suffix(SegmentName* name, const char* suffix) noexcept nogil:
    cdef int i, error
    for i in range(KINDS):
        error = rename_file(name, kinds[i], name.suffix, suffix)
        if error != 0:
            return error
    snprintf(name.suffix, SUFFIX_BYTES, "%s", suffix)
    return 0


cdef int remove_files(const char* folder, int64_t base_offset) noexcept nogil:
    cdef char file[PATH_BYTES]
    cdef int i, error
    for i in range(KINDS):
        snprintf(file, PATH_BYTES, "%s/%020lld%s", folder, <long long>base_offset, kinds[i])
        error = check_disk()
        if error == 0 and unlink(file) != 0 and errno != ENOENT:
            error = errno
        if error != 0:
            return error
    return 0
