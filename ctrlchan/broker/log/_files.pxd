# Files of a log directory, read and changed without the GIL. Functions return 0 or a positive errno.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # The memory of a path: the longest that Linux knows, and the name of a file in it
    PATH_BYTES = 4352
    # Of the longest suffix of a file, .deleted or .cleaned
    SUFFIX_BYTES = 16

# Asked before each change of a file by a log, whichever thread makes it. ``size``: the bytes to be written, 0 for other
# changes. 0: the change is made. An errno: only the first ``size`` bytes are written, and the change fails with it.
ctypedef int (*DiskFault)(void* context, int64_t* size) noexcept nogil


# The names of a segment's files: ``path``, a kind such as .log, ``suffix``.
cdef struct SegmentName:
    # Folder and 20 digits
    char* path
    char suffix[SUFFIX_BYTES]


# Let the disk fail for this process, as a simulation wants it; NULL: no more. No thread may use a log meanwhile.
cdef void set_disk_fault(DiskFault fault, void* context) noexcept nogil
# Return 0 if a file may be created or emptied.
cdef int check_disk() noexcept nogil
# Read ``size`` bytes at ``position``; EIO where the file ends before.
cdef int read_at(int fd, uint8_t* data, int64_t size, int64_t position) noexcept nogil
# Write at a position, or where the file's descriptor is.
cdef int write_at(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil
cdef int write_all(int fd, const uint8_t* data, int64_t size) noexcept nogil
# Cut a file, or make it longer by zeros.
cdef int resize_file(int fd, int64_t size) noexcept nogil
# Reserve disk space for a file of ``size`` bytes, whose size stays; nothing where the file system cannot.
cdef int reserve_file(int fd, int64_t size) noexcept nogil
# Make the bytes of a file survive a crash of the machine.
cdef int flush_file(int fd) noexcept nogil
# Write a file of the folder so that a crash leaves the old contents or the new ones.
cdef int replace_file(const char* folder, const char* name, const char* data, int64_t size) noexcept nogil
# Make the names of the files in the folder survive a crash of the machine.
cdef int flush_folder(const char* folder) noexcept nogil
# Rename a file or a folder.
cdef int rename_path(const char* old, const char* new) noexcept nogil
# Find when a file was changed, in nanoseconds since 1970.
cdef int modification_time(int fd, int64_t* ns) noexcept nogil

# Name the files of a segment; frees the former path. ENOMEM: the former path stays.
cdef int set_path(SegmentName* name, const char* folder, int64_t base_offset) noexcept nogil
# Open a file of a segment to read and write, and find its size. ``flags``: O_CREAT or 0.
cdef int open_file(const SegmentName* name, const char* kind, int flags, int* fd, int64_t* size) noexcept nogil
# Rename a file of a segment: ``suffix`` takes the place of ``old``. A missing file is no error.
cdef int rename_file(
    const SegmentName* name, const char* kind, const char* old, const char* suffix
) noexcept nogil
# Rename all files of a segment: ``suffix`` takes the place of the present one.
cdef int change_suffix(SegmentName* name, const char* suffix) noexcept nogil
# Delete the files of a segment that is not in the log: what a crash has left.
cdef int remove_files(const char* folder, int64_t base_offset) noexcept nogil
