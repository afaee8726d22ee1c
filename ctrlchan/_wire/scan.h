/* Scans of columns for sizing a message: runs of equal topic rows, bytes of lists.
 *
 * The loops over blocks have no exit in the middle, so that compilers can vectorise them. Row numbers are
 * checked on each use, because other threads may change them.
 */
#ifndef CTRLCHAN_SCAN_H
#define CTRLCHAN_SCAN_H

#include "rows.h"

enum { SCAN_BLOCK = 64 };

/* How many of the first `most` values are equal to `value`. */
static inline int64_t equal_values(const int32_t *values, int64_t most, int32_t value) {
    int64_t k, i = 0;
#ifdef CTRLCHAN_AVX512
    if (vector_bytes == 64) return equal_values_avx512(values, most, value);
#endif
    for (; most - i >= SCAN_BLOCK; i += SCAN_BLOCK) {
        int32_t differs = 0;
        for (k = 0; k < SCAN_BLOCK; k++) differs |= values[i + k] ^ value;
        if (differs) break;
    }
    while (i < most && values[i] == value) i++;
    return i;
}

/* The first position behind i, at most `stop`, that is not a row of the same topic. -1: i is not a row. */
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

/* Wire bytes of the lists at positions `from` to `stop`, with their counts; -1 when the one at *wrong has a
 * negative length or is not a row. */
static inline int64_t lists_size(
    const Lists *lists, const RowSource *source, int64_t from, int64_t stop, int flexible, int64_t *wrong
) {
    int64_t i, k, row, n, total = (stop - from) * (flexible ? 1 : 4);
    if (lists->lengths == NULL) return total;
    for (i = from; i < stop; i += n) {
        /* The bitwise OR of all lengths shows whether one is large or negative. */
        uint32_t every = 0, sum = 0;
        n = stop - i < SCAN_BLOCK ? stop - i : SCAN_BLOCK;
        if (source->rows == NULL) {
            const int32_t *lengths = lists->lengths + i;
            for (k = 0; k < n; k++) {
                every |= (uint32_t)lengths[k];
                sum += (uint32_t)lengths[k];
            }
        } else {
            for (k = i; k < i + n; k++) {
                uint32_t length;
                row = row_at(source, k);
                *wrong = k;
                if (row < 0) return -1;
                length = (uint32_t)lists->lengths[row];
                every |= length;
                sum += length;
            }
        }
        /* Lists this short have counts of one varint byte, and their sum is exact. */
        if (every < 127) {
            total += 4 * (int64_t)sum;
            continue;
        }
        for (k = i; k < i + n; k++) {
            int32_t length;
            row = row_at(source, k);
            *wrong = k;
            if (row < 0) return -1;
            length = once_i32(lists->lengths + row);
            if (length < 0) return -1;
            total += 4 * (int64_t)length + (flexible ? uvarint_size((uint32_t)length + 1) - 1 : 0);
        }
    }
    return total;
}

#endif
