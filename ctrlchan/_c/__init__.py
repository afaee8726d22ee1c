"""What all Cython rooms share: mutexes and conditions. It knows no other room."""
