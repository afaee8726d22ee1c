/* Partition rows between columns and wire bytes, many at a time, for the flexible versions.
 *
 *   partition, controller epoch, leader, leader epoch int32 | isr | partition epoch int32 | replicas |
 *   UpdateMetadata v6+:   offline          | tags
 *   LeaderAndIsr   v4-5:  adding, removing | is_new, tags
 *   LeaderAndIsr   v6+:   adding, removing | is_new, recovery state, tags
 *
 * put_rows and get_rows handle runs of ordinary rows: short lists, no tags, and far enough from the end of
 * every buffer to load and store whole vectors (the next field overwrites the bytes stored behind a field).
 * They stop before the first row that is not ordinary. The plain loops in the .pxi files, which check each
 * field and report faults, handle that row.
 *
 * Other threads may change columns and buffers meanwhile. That may garble the values that are written or read
 * but never makes the code touch other memory: it loads every start, length and count once, checks it, and
 * then uses it.
 */
#ifndef CTRLCHAN_ROWS_H
#define CTRLCHAN_ROWS_H

#include <stddef.h>
#include <stdlib.h>

#include "_c/bytes.h"
#include "columns.h"

#if defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL_4 _Pragma("unroll 4")
#elif defined(__GNUC__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL_4 _Pragma("GCC unroll 4")
#else
#define ALWAYS_INLINE inline
#define UNROLL_4
#endif

/* The layouts above, in their order: a constant argument of inlined functions, never tested in a row loop. */
typedef enum { UPDATE_METADATA_ROWS, LEADER_AND_ISR_4_ROWS, LEADER_AND_ISR_6_ROWS } RowLayout;
enum { ROW_LAYOUTS = 3 };

#define FOR_LAYOUT(layout, call, ...) \
    ((layout) == UPDATE_METADATA_ROWS    ? call(__VA_ARGS__, UPDATE_METADATA_ROWS) \
     : (layout) == LEADER_AND_ISR_4_ROWS ? call(__VA_ARGS__, LEADER_AND_ISR_4_ROWS) \
                                         : call(__VA_ARGS__, LEADER_AND_ISR_6_ROWS))

/* The bytes behind a row's last list. */
static ALWAYS_INLINE int row_bytes(RowLayout layout) { return 1 + (int)layout; }

#include "rows_wide.h"
#include "rows_avx512.h"

/* The widest vectors in use: 64 bytes, 16, or 0 for none. */
static int vector_bytes;

/* Choose the widest vectors of the processor, of at most `most` bytes, and return their size. Called before
 * anything is written or read. */
static inline int prepare_rows(int most) {
    vector_bytes = 0;
#ifdef CTRLCHAN_WIDE
    if (most >= 16) vector_bytes = 16;
#endif
#ifdef CTRLCHAN_AVX512
    if (most >= 64 && prepare_avx512()) vector_bytes = 64;
#endif
    return vector_bytes;
}

/* The first stretch that ends behind a position, NULL when there is none. */
static ALWAYS_INLINE const Stretch *next_stretch(RowSource *source, int64_t position) {
    for (; source->next < source->n_stretches; source->next++) {
        if (source->stretches[source->next].stop > position) return &source->stretches[source->next];
    }
    return NULL;
}

/* Write ordinary rows from *position to `stop` at most; returns the byte after the last one. *position
 * becomes the first position that is not written. */
static inline uint8_t *put_rows(
    uint8_t *p, const uint8_t *end, RowSource *source, int64_t *position, int64_t stop, RowLayout layout
) {
#ifdef CTRLCHAN_WIDE
    while (vector_bytes && *position < stop) {
        int64_t until = stop;
#ifdef CTRLCHAN_AVX512
        const Stretch *s = next_stretch(source, *position);
        if (s != NULL && s->position <= *position) {
            const int64_t n = (s->stop < stop ? s->stop : stop) - *position;
            if (end - p >= n * WOVEN_ROW + WOVEN_REACH) {
                p = put_stretch_avx512(p, source, s, *position, n, layout);
                *position += n;
                continue;
            }
        } else if (s != NULL && s->position < stop) {
            until = s->position;
        }
#endif
        p = FOR_LAYOUT(layout, put_rows_wide, p, end, source, position, until);
        if (*position < until) break;
    }
#endif
    return p;
}

/* Read ordinary rows of one topic, at most *left, and lower *left by their number; returns the byte after the
 * last one. There must be room for *left rows. */
static inline const uint8_t *get_rows(
    const uint8_t *p, const uint8_t *end, PartitionFill *fill, int32_t topic, int64_t *left, RowLayout layout
) {
#ifdef CTRLCHAN_AVX512
    if (vector_bytes == 64) return get_rows_avx512(p, end, fill, topic, left, layout);
#endif
#ifdef CTRLCHAN_WIDE
    if (vector_bytes) p = FOR_LAYOUT(layout, get_rows_wide, p, end, fill, topic, left);
#endif
    return p;
}

/* Find the long stretches among n positions, into memory that the caller frees; returns their number.
 * Stretches that there is no memory for are left out. */
static inline int64_t find_stretches(const RowSource *source, int64_t n, RowLayout layout, Stretch **found) {
    int64_t count = 0;
    *found = NULL;
#ifdef CTRLCHAN_AVX512
    {
        int64_t i, length, room = 0;
        for (i = 0; vector_bytes == 64 && i < n; i += length) {
            Stretch s;
            s.position = i;
            length = find_stretch_avx512(source, n - i, &s, layout);
            if (length < SHORTEST_STRETCH) {
                length = BLOCK;
                continue;
            }
            if (count == room) {
                Stretch *more = (Stretch *)realloc(*found, (size_t)(2 * room + 4) * sizeof(Stretch));
                if (more == NULL) break;
                *found = more;
                room = 2 * room + 4;
            }
            (*found)[count++] = s;
        }
    }
#endif
    return count;
}

#endif
