# Files of a log directory, changed without the GIL. Functions return 0 or a positive errno.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # The memory of a path: the longest that Linux knows, and the name of a file in it
    PATH_BYTES = 4352

# Asked before each change of a file by a log, whichever thread makes it. ``size``: the bytes to be written, 0 for other
# changes. 0: the change is made. An errno: only the first ``size`` bytes are written, and the change fails with it.
ctypedef int (*DiskFault)(void* context, int64_t* size) noexcept nogil

# Let the disk fail for this process, as a simulation wants it; NULL: no more. No thread may use a log meanwhile.
cdef void set_disk_fault(DiskFault fault, void* context) noexcept nogil
# Return 0 if a file may be created or emptied.
cdef int check_disk() noexcept nogil
# Write at a position, or where the file's descriptor is.
cdef int write_at(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil
cdef int write_all(int fd, const uint8_t* data, int64_t size) noexcept nogil
# Cut a file, or make it longer by zeros.
cdef int resize_file(int fd, int64_t size) noexcept nogil
# Make the bytes of a file survive a crash of the machine.
cdef int flush_file(int fd) noexcept nogil
# Write a file of the folder so that a crash leaves the old contents or the new ones.
cdef int replace_file(const char* folder, const char* name, const char* data, int64_t size) noexcept nogil
# Make the names of the files in the folder survive a crash of the machine.
cdef int flush_folder(const char* folder) noexcept nogil
# Rename a file or a folder.
cdef int rename_path(const char* old, const char* new) noexcept nogil
# Delete a file; a missing file is no error.
cdef int delete_file(const char* path) noexcept nogil
# Find when a file was changed, in nanoseconds since 1970.
cdef int modification_time(int fd, int64_t* ns) noexcept nogil
