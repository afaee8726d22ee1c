# Files of a log directory, changed without the GIL. Functions return 0 or a positive errno.

from libc.stdint cimport int64_t

cdef enum:
    # The memory of a path: the longest that Linux knows, and the name of a file in it
    PATH_BYTES = 4352

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
