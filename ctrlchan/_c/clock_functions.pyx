"""The operating system's clock, behind the functions that another clock may replace. See clock_functions.pxd."""

cdef extern from "_c/clock_functions.h" nogil:
    const ClockFunctions SYSTEM_CLOCK_FUNCTIONS


cdef class Clock:
    """The time of the operating system. A subclass that sets ``functions`` has another one."""

    def __cinit__(self):
        self.functions = &SYSTEM_CLOCK_FUNCTIONS


#: The clock of all that is not given another one.
SYSTEM_CLOCK = Clock()
