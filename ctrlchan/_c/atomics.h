/* Memory that several threads change and read without a mutex. */
#ifndef CTRLCHAN_ATOMICS_H
#define CTRLCHAN_ATOMICS_H

#include <stdint.h>

/* -- all threads see these in one order, and with them all that was written before */

/* Returns the sum. */
static inline int64_t add_and_get(int64_t *number, int64_t more) {
    return __atomic_add_fetch(number, more, __ATOMIC_SEQ_CST);
}
static inline int64_t load_number(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }
static inline void store_number(int64_t *number, int64_t value) { __atomic_store_n(number, value, __ATOMIC_SEQ_CST); }
static inline const void *load_pointer(const void *const *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
static inline void store_pointer(const void **place, const void *pointer) {
    __atomic_store_n(place, pointer, __ATOMIC_SEQ_CST);
}

/* Returns whether the number was `expected`, and is `value` now. */
static inline _Bool exchange_if(int64_t *number, int64_t expected, int64_t value) {
    return __atomic_compare_exchange_n(number, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* -- counters: readers see a value that was true; their order against other memory does not matter */

/* Of one thread alone. */
static inline void count(int64_t *counter, int64_t more) {
    __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}
/* Of several threads. */
static inline void count_shared(int64_t *counter, int64_t more) { __atomic_add_fetch(counter, more, __ATOMIC_RELAXED); }
static inline int64_t counted(const int64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

#endif
