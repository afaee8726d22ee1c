"""What all Cython rooms share: mutexes and conditions, threads, the watchdog. It knows no other room."""
