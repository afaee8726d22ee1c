/* Writes and reads a few partition rows at a time, in vectors of sixteen bytes: x86-64-v2 and AArch64 have a
 * byte shuffle. */
#ifndef CTRLCHAN_ROWS_WIDE_H
#define CTRLCHAN_ROWS_WIDE_H

#if defined(__SSSE3__)
#include <tmmintrin.h>
#define CTRLCHAN_WIDE 1
typedef __m128i wide;
static ALWAYS_INLINE wide wide_load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
static ALWAYS_INLINE void wide_store(void *p, wide v) { _mm_storeu_si128((__m128i *)p, v); }
static ALWAYS_INLINE wide wide_shuffle(wide v, wide indexes) { return _mm_shuffle_epi8(v, indexes); }
static ALWAYS_INLINE wide wide_four(int32_t a, int32_t b, int32_t c, int32_t d) {
    return _mm_setr_epi32(a, b, c, d);
}
/* Four rows of four int32 become four columns. */
static ALWAYS_INLINE void wide_transpose(wide r[4]) {
    const wide ab = _mm_unpacklo_epi32(r[0], r[1]), cd = _mm_unpacklo_epi32(r[2], r[3]);
    const wide ef = _mm_unpackhi_epi32(r[0], r[1]), gh = _mm_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm_unpacklo_epi64(ab, cd);
    r[1] = _mm_unpackhi_epi64(ab, cd);
    r[2] = _mm_unpacklo_epi64(ef, gh);
    r[3] = _mm_unpackhi_epi64(ef, gh);
}
#elif defined(__aarch64__) && !defined(CTRLCHAN_BIG_ENDIAN)
#include <arm_neon.h>
#define CTRLCHAN_WIDE 1
typedef uint8x16_t wide;
static ALWAYS_INLINE wide wide_load(const void *p) { return vld1q_u8((const uint8_t *)p); }
static ALWAYS_INLINE void wide_store(void *p, wide v) { vst1q_u8((uint8_t *)p, v); }
static ALWAYS_INLINE wide wide_shuffle(wide v, wide indexes) { return vqtbl1q_u8(v, indexes); }
static ALWAYS_INLINE wide wide_four(int32_t a, int32_t b, int32_t c, int32_t d) {
    const int32_t four[4] = {a, b, c, d};
    return wide_load(four);
}
static ALWAYS_INLINE void wide_transpose(wide r[4]) {
    const uint32x4_t a = vreinterpretq_u32_u8(r[0]), b = vreinterpretq_u32_u8(r[1]);
    const uint32x4_t c = vreinterpretq_u32_u8(r[2]), d = vreinterpretq_u32_u8(r[3]);
    const uint64x2_t ab = vreinterpretq_u64_u32(vzip1q_u32(a, b));
    const uint64x2_t cd = vreinterpretq_u64_u32(vzip1q_u32(c, d));
    const uint64x2_t ef = vreinterpretq_u64_u32(vzip2q_u32(a, b));
    const uint64x2_t gh = vreinterpretq_u64_u32(vzip2q_u32(c, d));
    r[0] = vreinterpretq_u8_u64(vzip1q_u64(ab, cd));
    r[1] = vreinterpretq_u8_u64(vzip2q_u64(ab, cd));
    r[2] = vreinterpretq_u8_u64(vzip1q_u64(ef, gh));
    r[3] = vreinterpretq_u8_u64(vzip2q_u64(ef, gh));
}
#endif

#ifdef CTRLCHAN_WIDE

/* Shuffle indexes (0x80 and above: zero): swap four int32; swap three and move them up one byte. */
static const uint8_t SWAP_FOUR[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
static const uint8_t SWAP_THREE_UP[16] = {0xff, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 0xff, 0xff, 0xff};

enum {
    /* Two stores write a list's count and up to seven values. */
    SHORT_LIST = 7,
    LONGEST_ROW = 20 + 4 * (1 + 4 * SHORT_LIST) + 3,
    /* Bytes that four rows and the vectors at their ends may touch. */
    FEW_ROWS_REACH = 5 * LONGEST_ROW
};

/* ------------------------------------------------------------------------------------------- writing */

/* A list column of which lists that start before `limit` may be loaded in whole vectors. */
typedef struct {
    const int32_t *starts, *lengths, *values;
    uint64_t limit;
} WideLists;

typedef struct {
    WideLists isr, replicas, other, removing;
} WideColumns;

typedef struct {
    const int32_t *values;
    int64_t length;
} Slice;

static ALWAYS_INLINE WideLists wide_lists(const Lists *lists) {
    WideLists w;
    w.starts = lists->starts;
    w.lengths = lists->lengths;
    w.values = lists->values;
    w.limit = lists->n_values >= SHORT_LIST ? (uint64_t)(lists->n_values - SHORT_LIST + 1) : 0;
    return w;
}

static ALWAYS_INLINE WideColumns wide_columns(const PartitionColumns *c, RowLayout layout) {
    WideColumns w;
    w.isr = wide_lists(&c->isr);
    w.replicas = wide_lists(&c->replicas);
    w.other = wide_lists(layout == UPDATE_METADATA_ROWS ? &c->offline : &c->adding);
    w.removing = wide_lists(&c->removing);
    return w;
}

/* Load list `row`; 0 when it is long, or too near to the end of its values for whole vectors. */
static ALWAYS_INLINE int short_list(const WideLists *lists, int64_t row, Slice *s) {
    uint64_t start;
    s->length = 0;
    s->values = NULL;
    if (lists->lengths == NULL) return 1;
    s->length = (uint32_t)once_i32(lists->lengths + row);
    if (s->length == 0) return 1;
    start = (uint64_t)(int64_t)once_i32(lists->starts + row);
    if (s->length > SHORT_LIST || start >= lists->limit) return 0;
    s->values = lists->values + start;
    return 1;
}

static ALWAYS_INLINE void put_short_list(uint8_t *p, Slice s) {
    if (s.length) {
        wide_store(p, wide_shuffle(wide_load(s.values), wide_load(SWAP_THREE_UP)));
        if (s.length > 3) wide_store(p + 13, wide_shuffle(wide_load(s.values + 3), wide_load(SWAP_FOUR)));
    }
    *p = (uint8_t)(s.length + 1);
}

/* Write one row, its first four fields in `fixed`; NULL, with nothing written, when it is not ordinary. */
static ALWAYS_INLINE uint8_t *put_row(
    uint8_t *p, const PartitionColumns *c, const WideColumns *w, int64_t row, wide fixed, uint8_t is_new,
    RowLayout layout
) {
    Slice isr, replicas, other, removing = {NULL, 0};
    int64_t at_replicas, at_other, at_bytes;
    int32_t recovery = 0;
    if (!short_list(&w->isr, row, &isr) || !short_list(&w->replicas, row, &replicas)) return NULL;
    if (!short_list(&w->other, row, &other)) return NULL;
    if (layout != UPDATE_METADATA_ROWS && !short_list(&w->removing, row, &removing)) return NULL;
    if (layout == LEADER_AND_ISR_6_ROWS) {
        recovery = once_i32(c->recovery_state + row);
        if (recovery != (int8_t)recovery) return NULL;
    }
    /* All offsets first: the next row then depends on one sum, not on one list after the other. */
    at_replicas = 16 + 1 + 4 * isr.length + 4;
    at_other = at_replicas + 1 + 4 * replicas.length;
    at_bytes = at_other + 1 + 4 * other.length;
    wide_store(p, wide_shuffle(fixed, wide_load(SWAP_FOUR)));
    put_short_list(p + 16, isr);
    put_i32(p + at_replicas - 4, c->partition_epoch[row]);
    put_short_list(p + at_replicas, replicas);
    put_short_list(p + at_other, other);
    if (layout != UPDATE_METADATA_ROWS) {
        put_short_list(p + at_bytes, removing);
        at_bytes += 1 + 4 * removing.length;
        p[at_bytes++] = is_new != 0;
    }
    if (layout == LEADER_AND_ISR_6_ROWS) p[at_bytes++] = (uint8_t)recovery;
    p[at_bytes] = 0;
    return p + at_bytes + 1;
}

/* Whether the four rows from this position on, of which `row` is the first, are successive. */
static ALWAYS_INLINE int four_successive(const RowSource *s, int64_t position, int64_t row) {
    const int64_t *rows;
    if (row + 4 > s->n_columns) return 0;
    if (s->rows == NULL) return 1;
    rows = s->rows + position;
    return (rows[1] == row + 1) & (rows[2] == row + 2) & (rows[3] == row + 3);
}

/* Write one to four of the positions from i to `stop` and move *next behind them; returns how many. 0: the
 * next row is not ordinary. FEW_ROWS_REACH bytes must be free. */
static ALWAYS_INLINE int64_t put_few_rows(
    uint8_t **next, const PartitionColumns *c, const WideColumns *w, const RowSource *s, int64_t i,
    int64_t stop, RowLayout layout
) {
    const uint8_t *is_new = s->is_new == NULL ? NULL : s->is_new + i;
    const int64_t row = row_at(s, i);
    uint8_t *p = *next;
    wide fixed[4];
    int64_t k;
    if (row < 0) return 0;
    if (stop - i < 4 || !four_successive(s, i, row)) {
        fixed[0] = wide_four(
            c->partition[row], c->controller_epoch[row], c->leader[row], c->leader_epoch[row]
        );
        p = put_row(p, c, w, row, fixed[0], is_new == NULL ? 0 : is_new[0], layout);
        if (p == NULL) return 0;
        *next = p;
        return 1;
    }
    fixed[0] = wide_load(c->partition + row);
    fixed[1] = wide_load(c->controller_epoch + row);
    fixed[2] = wide_load(c->leader + row);
    fixed[3] = wide_load(c->leader_epoch + row);
    wide_transpose(fixed);
    UNROLL_4
    for (k = 0; k < 4; k++) {
        p = put_row(p, c, w, row + k, fixed[k], is_new == NULL ? 0 : is_new[k], layout);
        if (p == NULL) return k;
        *next = p;
    }
    return 4;
}

static ALWAYS_INLINE uint8_t *put_rows_wide(
    uint8_t *p, const uint8_t *end, const RowSource *source, int64_t *position, int64_t stop, RowLayout layout
) {
    /* Copies: otherwise the compiler must expect that a stored byte changes what `source` points at. */
    const RowSource s = *source;
    const PartitionColumns c = *s.columns;
    const WideColumns w = wide_columns(&c, layout);
    int64_t n, i = *position;
    while (i < stop && end - p >= FEW_ROWS_REACH) {
        n = put_few_rows(&p, &c, &w, &s, i, stop, layout);
        if (n == 0) break;
        i += n;
    }
    *position = i;
    return p;
}

/* ------------------------------------------------------------------------------------------- reading */

/* Zero when the row at p has the expected shape. */
static ALWAYS_INLINE int64_t shape_differs(const uint8_t *p, const RowShape *shape, RowLayout layout) {
    int64_t differs = (p[16] ^ (shape->isr + 1)) | (p[shape->at_replicas] ^ (shape->replicas + 1));
    differs |= (p[shape->at_other] ^ (shape->other + 1)) | p[shape->size - 1];
    if (layout != UPDATE_METADATA_ROWS) differs |= p[shape->at_removing] ^ (shape->removing + 1);
    return differs;
}

static ALWAYS_INLINE int four_have_shape(const uint8_t *p, const RowShape *shape, RowLayout layout) {
    int64_t differs = shape_differs(p, shape, layout) | shape_differs(p + shape->size, shape, layout);
    differs |= shape_differs(p + 2 * shape->size, shape, layout);
    differs |= shape_differs(p + 3 * shape->size, shape, layout);
    return differs == 0;
}

static ALWAYS_INLINE int has_list_room(const ListFill *list) {
    return list->room - list->used >= FEW_LISTS_ROOM;
}

/* Whether there is room for the lists of four rows. */
static ALWAYS_INLINE int has_room(const PartitionFill *o, RowLayout layout) {
    if (!has_list_room(&o->isr) || !has_list_room(&o->replicas)) return 0;
    if (layout == UPDATE_METADATA_ROWS) return has_list_room(&o->offline);
    return has_list_room(&o->adding) && has_list_room(&o->removing);
}

/* Read the lists of four rows, all of this length; the first begins at p, the others every `size` bytes. */
static ALWAYS_INLINE void get_four_lists(
    const uint8_t *p, int64_t size, ListFill *list, int64_t row, int64_t length
) {
    const wide swap = wide_load(SWAP_FOUR);
    const int32_t start = (int32_t)list->used, step = (int32_t)length;
    int32_t *values = list->values + list->used;
    int64_t k;
    wide_store(list->starts + row, wide_four(start, start + step, start + 2 * step, start + 3 * step));
    wide_store(list->lengths + row, wide_four(step, step, step, step));
    list->used += 4 * length;
    if (length == 0) return;
    UNROLL_4
    for (k = 0; k < 4; k++) {
        wide_store(values + k * length, wide_shuffle(wide_load(p + k * size + 1), swap));
        if (length > 4) wide_store(values + k * length + 4, wide_shuffle(wide_load(p + k * size + 17), swap));
    }
}

/* Read four rows of the expected shape. */
static ALWAYS_INLINE void get_four_rows(const uint8_t *p, PartitionFill *o, int32_t topic, RowLayout layout) {
    const wide swap = wide_load(SWAP_FOUR);
    const RowShape *shape = &o->shape;
    const int64_t size = shape->size, row = o->n;
    wide fixed[4];
    int64_t k;
    UNROLL_4
    for (k = 0; k < 4; k++) fixed[k] = wide_load(p + k * size);
    wide_transpose(fixed);
    wide_store(o->topic_row + row, wide_four(topic, topic, topic, topic));
    wide_store(o->partition + row, wide_shuffle(fixed[0], swap));
    wide_store(o->controller_epoch + row, wide_shuffle(fixed[1], swap));
    wide_store(o->leader + row, wide_shuffle(fixed[2], swap));
    wide_store(o->leader_epoch + row, wide_shuffle(fixed[3], swap));
    UNROLL_4
    for (k = 0; k < 4; k++) o->partition_epoch[row + k] = get_i32(p + k * size + shape->at_replicas - 4);
    get_four_lists(p + 16, size, &o->isr, row, shape->isr);
    get_four_lists(p + shape->at_replicas, size, &o->replicas, row, shape->replicas);
    if (layout == UPDATE_METADATA_ROWS) {
        get_four_lists(p + shape->at_other, size, &o->offline, row, shape->other);
        return;
    }
    get_four_lists(p + shape->at_other, size, &o->adding, row, shape->other);
    get_four_lists(p + shape->at_removing, size, &o->removing, row, shape->removing);
    UNROLL_4
    for (k = 0; k < 4; k++) {
        const uint8_t *bytes = p + k * size + shape->at_bytes;
        o->flags[row + k] = bytes[0] != 0;
        o->recovery_state[row + k] = layout == LEADER_AND_ISR_6_ROWS ? (int8_t)bytes[1] : 0;
    }
}

/* Read the list at p and set *length; returns the byte after it, NULL when it is long. */
static ALWAYS_INLINE const uint8_t *get_short_list(
    const uint8_t *p, ListFill *list, int64_t row, int64_t *length
) {
    const wide swap = wide_load(SWAP_FOUR);
    const int64_t n = (int64_t)once_u8(p) - 1;
    int32_t *values = list->values + list->used;
    if ((uint64_t)n > SHORT_LIST) return NULL;
    *length = n;
    list->starts[row] = (int32_t)list->used;
    list->lengths[row] = (int32_t)n;
    list->used += n;
    wide_store(values, wide_shuffle(wide_load(p + 1), swap));
    if (n > 4) wide_store(values + 4, wide_shuffle(wide_load(p + 17), swap));
    return p + 1 + 4 * n;
}

/* Read one row and expect its shape of the next one. 0, with no row added, when it is not ordinary. */
static ALWAYS_INLINE int64_t get_one_row(
    const uint8_t *p, PartitionFill *o, int32_t topic, RowLayout layout
) {
    const int64_t row = o->n, isr = o->isr.used, replicas = o->replicas.used;
    const int64_t offline = o->offline.used, adding = o->adding.used, removing = o->removing.used;
    const uint8_t *q = get_short_list(p + 16, &o->isr, row, &o->shape.isr);
    if (q != NULL) {
        o->topic_row[row] = topic;
        o->partition[row] = get_i32(p);
        o->controller_epoch[row] = get_i32(p + 4);
        o->leader[row] = get_i32(p + 8);
        o->leader_epoch[row] = get_i32(p + 12);
        o->partition_epoch[row] = get_i32(q);
        o->shape.at_replicas = q + 4 - p;
        q = get_short_list(q + 4, &o->replicas, row, &o->shape.replicas);
    }
    if (q != NULL) {
        ListFill *third = layout == UPDATE_METADATA_ROWS ? &o->offline : &o->adding;
        o->shape.at_other = q - p;
        q = get_short_list(q, third, row, &o->shape.other);
    }
    if (q != NULL && layout != UPDATE_METADATA_ROWS) {
        o->shape.at_removing = q - p;
        q = get_short_list(q, &o->removing, row, &o->shape.removing);
    }
    if (q != NULL) {
        o->shape.at_bytes = q - p;
        o->shape.size = o->shape.at_bytes + row_bytes(layout);
        if (layout != UPDATE_METADATA_ROWS) {
            o->flags[row] = q[0] != 0;
            o->recovery_state[row] = layout == LEADER_AND_ISR_6_ROWS ? (int8_t)q[1] : 0;
        }
    }
    if (q == NULL || p[o->shape.size - 1] != 0) {
        o->isr.used = isr;
        o->replicas.used = replicas;
        o->offline.used = offline;
        o->adding.used = adding;
        o->removing.used = removing;
        o->shape.size = 0;
        return 0;
    }
    return 1;
}

/* Read one or four of the `most` rows from p on into the rows behind o->n; returns how many. 0: the next row
 * is not ordinary.
 *
 * The expected shape is that of the row before: four rows are compared with it side by side. Without it, each
 * row's counts would have to be read before the next row's place is known. There must be FEW_ROWS_REACH bytes
 * at p, and room for four rows and their lists. */
static ALWAYS_INLINE int64_t get_few_rows(
    const uint8_t *p, PartitionFill *o, int32_t topic, int64_t most, RowLayout layout
) {
    const int expects = o->shape.size != 0;
    if (expects && most >= 4 && four_have_shape(p, &o->shape, layout)) {
        get_four_rows(p, o, topic, layout);
        return o->shape.run = 4;
    }
    /* Fewer than four rows left do not mean that the next topic has no more of this shape. */
    if (!expects || most >= 4 || shape_differs(p, &o->shape, layout)) o->shape.run = 0;
    return get_one_row(p, o, topic, layout);
}

static ALWAYS_INLINE const uint8_t *get_rows_wide(
    const uint8_t *p, const uint8_t *end, PartitionFill *fill, int32_t topic, int64_t *left, RowLayout layout
) {
    /* A copy, for the same reason as in put_rows_wide. */
    PartitionFill o = *fill;
    int64_t n, most = *left;
    while (most > 0 && end - p >= FEW_ROWS_REACH && has_room(&o, layout)) {
        n = get_few_rows(p, &o, topic, most, layout);
        if (n == 0) break;
        o.n += n;
        most -= n;
        p += n * o.shape.size;
    }
    *fill = o;
    *left = most;
    return p;
}

#endif
#endif
