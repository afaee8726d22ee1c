"""Mutexes that tests lock with and without the GIL."""

from ctrlchan._c.locks cimport Mutex, Rank, close_mutex, lock, open_mutex, require, unlock


cdef class CheckedMutex:
    """A mutex. ``rank``: a number of ``Rank``."""

    cdef Mutex mutex

    def __cinit__(self, int rank):
        open_mutex(&self.mutex, <Rank>rank)

    def __dealloc__(self):
        close_mutex(&self.mutex)

    def lock(self):
        """Lock it as code without the GIL does."""
        with nogil:
            lock(&self.mutex)

    def lock_with_gil(self):
        """Lock it while this thread holds the GIL: what no code may do."""
        lock(&self.mutex)

    def unlock(self):
        """Unlock it."""
        unlock(&self.mutex)

    def require(self):
        """State that this thread has locked it."""
        require(&self.mutex)
