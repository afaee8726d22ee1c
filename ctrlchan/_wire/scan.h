/* What sizing a message asks of its columns: runs of equal topic rows, bytes of lists.
 *
 * The loops over blocks are written for compilers to vectorise: no exit in the middle, 32-bit sums that cannot
 * overflow. Row numbers are checked on each use, because other threads may change them.
 */
#ifndef CTRLCHAN_SCAN_H
#define CTRLCHAN_SCAN_H

#include "rows.h"

enum { SCAN_BLOCK = 64 };

/* The first of `most` values that differs from `value`. */
static inline int64_t equal_values(const int32_t *values, int64_t most, int32_t value) {
    int64_t k, i = 0;
#ifdef CTRLCHAN_AVX512
    if (avx512_works) return equal_values_avx512(values, most, value);
#endif
    for (; most - i >= SCAN_BLOCK; i += SCAN_BLOCK) {
        int32_t differs = 0;
        for (k = 0; k < SCAN_BLOCK; k++) differs |= values[i + k] ^ value;
        if (differs) break;
    }
    while (i < most && values[i] == value) i++;
    return i;
}

/* The first position behind i, `stop` at the most, that is not a row of the same topic. -1: i is not a row. */
static inline int64_t topic_run(
    const int32_t *topic_row, const RowSource *source, int64_t i, int64_t stop, int32_t *topic
) {
    int64_t row = row_at(source, i);
    if (row < 0) return -1;
    *topic = once_i32(topic_row + row);
    i++;
    if (source->rows == NULL) return i + equal_values(topic_row + i, stop - i, *topic);
    for (; i < stop; i++) {
        row = row_at(source, i);
        if (row < 0 || topic_row[row] != *topic) break;
    }
    return i;
}

/* Wire bytes of the lists at positions `from` to `stop`, with their counts; -1 when one has a negative length or is
 * not a row: position *wrong. */
static inline int64_t lists_size(
    const Lists *lists, const RowSource *source, int64_t from, int64_t stop, int flexible, int64_t *wrong
) {
    int64_t i, k, row, n, total = (stop - from) * (flexible ? 1 : 4);
    if (lists->lengths == NULL) return total;
    for (i = from; i < stop; i += n) {
        uint32_t every = ~0u, sum = 0;
        n = stop - i < SCAN_BLOCK ? stop - i : SCAN_BLOCK;
        if (source->rows == NULL) {
            const int32_t *lengths = lists->lengths + i;
            every = 0;
            for (k = 0; k < n; k++) {
                every |= (uint32_t)lengths[k];
                sum += (uint32_t)lengths[k];
            }
        }
        /* Every count is one varint byte. */
        if (every < 127) {
            total += 4 * (int64_t)sum;
            continue;
        }
        for (k = i; k < i + n; k++) {
            int32_t length;
            *wrong = k;
            row = row_at(source, k);
            if (row < 0) return -1;
            length = once_i32(lists->lengths + row);
            if (length < 0) return -1;
            total += 4 * (int64_t)length + (flexible ? uvarint_size((uint32_t)length + 1) - 1 : 0);
        }
    }
    return total;
}

#endif
