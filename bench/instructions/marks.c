/* Client requests to callgrind, for Python: which calls are counted, and when counts are written.
 * Outside valgrind they do nothing. */
#include <string.h>
#include <valgrind/callgrind.h>

void *PyObject_CallNoArgs(void *callable);

void *counted(void *callable) {
    void *result;
    CALLGRIND_TOGGLE_COLLECT;
    result = PyObject_CallNoArgs(callable);
    CALLGRIND_TOGGLE_COLLECT;
    return result;
}

/* Until then callgrind runs the program without following it, which is four times faster. */
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }

/* Writes what was counted since the last call. */
void dump(const char *label) { CALLGRIND_DUMP_STATS_AT(label); }

#define ADD(name) \
    if (__builtin_cpu_supports(name)) strcat(found, name " ")

/* The extensions of x86-64 on which our code and that of the libraries depends; of other machines none. */
const char *cpu_features(void) {
    static char found[200];
    found[0] = 0;
#ifdef __x86_64__
    ADD("sse4.2");
    ADD("pclmul");
    ADD("aes");
    ADD("avx");
    ADD("avx2");
    ADD("bmi2");
    ADD("avx512f");
    ADD("avx512vbmi");
#endif
    return found;
}
