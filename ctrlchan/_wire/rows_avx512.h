/* Many partition rows at a time in vectors of 64 bytes (AVX-512 with VBMI), as weave.h describes.
 *
 * rows_wide.h (16 bytes) writes and reads all other rows. 100,000 rows of UpdateMetadata v8 are encoded in
 * 0.30 ms instead of 0.79 ms, and decoded from the cache in 0.26 ms instead of 0.49 ms.
 */
#ifndef CTRLCHAN_ROWS_AVX512_H
#define CTRLCHAN_ROWS_AVX512_H

#if defined(CTRLCHAN_WIDE) && defined(__x86_64__) && defined(__GNUC__)
#define CTRLCHAN_AVX512 1
#include <immintrin.h>

#include "weave.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define AVX512_INLINE AVX512 ALWAYS_INLINE
/* Functions that code for other processors calls. */
#define AVX512_ENTRY AVX512 __attribute__((noinline))

enum {
    /* Rows whose lists are compared at once; fewer rows do not make a stretch. */
    BLOCK = 16,
    SHORTEST_STRETCH = BLOCK,
    /* Bytes by which list values are fetched ahead of the loads. */
    FETCH_AHEAD = 512
};

/* Prepare the functions below; 0 when the processor does not have their instructions. */
static int prepare_avx512(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return 0;
    if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vbmi")) return 0;
    make_weaves();
    return 1;
}

static ALWAYS_INLINE uint32_t low_bits(int64_t n) { return n < 32 ? (1u << n) - 1 : 0xffffffffu; }

static AVX512_INLINE __m512i load_64(const void *p) { return _mm512_loadu_si512(p); }

static AVX512_INLINE void store_16(void *p, __m128i v) { _mm_storeu_si128((__m128i *)p, v); }

/* Load the int32 of `block`, sixteen or fewer; memory behind them is not touched. */
static AVX512_INLINE __m512i load_block(const int32_t *p, __mmask16 block) {
    return _mm512_maskz_loadu_epi32(block, p);
}

/* Load n (1 to 4) int32; memory behind them is not touched. */
static AVX512_INLINE __m128i load_few(const int32_t *p, int64_t n) {
    return n == 4 ? _mm_loadu_si128((const __m128i *)p) : _mm_maskz_loadu_epi32((__mmask8)low_bits(n), p);
}

/* first, first + step, first + 2 * step and so on */
static AVX512_INLINE __m512i steps(int64_t first, int64_t step) {
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i ahead = _mm512_mullo_epi32(count, _mm512_set1_epi32((int32_t)step));
    return _mm512_add_epi32(_mm512_set1_epi32((int32_t)first), ahead);
}

/* ------------------------------------------------------------------------------------------- sizing */

/* How many of the first `most` values are equal to `value`. */
static AVX512_ENTRY int64_t equal_values_avx512(const int32_t *values, int64_t most, int32_t value) {
    const __m512i expected = _mm512_set1_epi32(value);
    int64_t k = 0;
    for (; most - k >= 4 * BLOCK; k += 4 * BLOCK) {
        __m512i differs = _mm512_xor_si512(load_64(values + k), expected);
        differs = _mm512_or_si512(differs, _mm512_xor_si512(load_64(values + k + BLOCK), expected));
        differs = _mm512_or_si512(differs, _mm512_xor_si512(load_64(values + k + 2 * BLOCK), expected));
        differs = _mm512_or_si512(differs, _mm512_xor_si512(load_64(values + k + 3 * BLOCK), expected));
        if (_mm512_test_epi32_mask(differs, differs)) break;
    }
    for (; k < most; k += BLOCK) {
        const __mmask16 block = (__mmask16)low_bits(most - k);
        const __mmask16 odd = _mm512_mask_cmpneq_epi32_mask(block, load_block(values + k, block), expected);
        if (odd) return k + __builtin_ctz(odd);
    }
    return most;
}

/* The rows of a block, which begins with row `row`, whose lists do not have these lengths and starts. */
static AVX512_INLINE __mmask16 odd_lists(
    const Lists *lists, int64_t row, __mmask16 block, __m512i lengths, __m512i starts
) {
    const __m512i l = load_block(lists->lengths + row, block), s = load_block(lists->starts + row, block);
    return _mm512_mask_cmpneq_epi32_mask(block, l, lengths) | _mm512_mask_cmpneq_epi32_mask(block, s, starts);
}

/* The rows of a block for which a column (NULL: no rows) is not 0. */
static AVX512_INLINE __mmask16 not_zero(const int32_t *column, int64_t row, __mmask16 block) {
    __m512i v;
    if (column == NULL) return 0;
    v = load_block(column + row, block);
    return _mm512_test_epi32_mask(v, v);
}

/* The positions of a block that are not the successive rows from `row` on. */
static AVX512_INLINE __mmask16 other_rows(const int64_t *rows, __mmask16 block, int64_t row) {
    const __m512i eight = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i low = _mm512_add_epi64(_mm512_set1_epi64(row), eight);
    const __m512i high = _mm512_add_epi64(_mm512_set1_epi64(row + 8), eight);
    const __mmask8 few = (__mmask8)block, more = (__mmask8)(block >> 8);
    const __mmask8 a = _mm512_mask_cmpneq_epi64_mask(few, _mm512_maskz_loadu_epi64(few, rows), low);
    const __mmask8 b = _mm512_mask_cmpneq_epi64_mask(more, _mm512_maskz_loadu_epi64(more, rows + 8), high);
    return (__mmask16)(a | b << 8);
}

/* Find the stretch that begins at s->position, of n positions at most; returns its length, 0 for none. */
static AVX512_INLINE int64_t find_stretch(const RowSource *source, int64_t n, Stretch *s, RowLayout layout) {
    const PartitionColumns *c = source->columns;
    const int64_t row = row_at(source, s->position);
    __m512i isr_lengths, isr_starts, lengths, starts;
    int64_t k;
    if (row < 0) return 0;
    if (n > source->n_columns - row) n = source->n_columns - row;
    s->row = row;
    s->isr = once_i32(c->isr.lengths + row);
    s->isr_start = once_i32(c->isr.starts + row);
    s->replicas = once_i32(c->replicas.lengths + row);
    s->replicas_start = once_i32(c->replicas.starts + row);
    if (s->isr < 1 || s->isr > WOVEN_LIST || s->replicas < 1 || s->replicas > WOVEN_LIST) return 0;
    isr_lengths = _mm512_set1_epi32((int32_t)s->isr);
    isr_starts = steps(s->isr_start, s->isr);
    lengths = _mm512_set1_epi32((int32_t)s->replicas);
    starts = steps(s->replicas_start, s->replicas);
    for (k = 0; k < n; k += BLOCK) {
        const __mmask16 block = (__mmask16)low_bits(n - k);
        __mmask16 odd = odd_lists(&c->isr, row + k, block, isr_lengths, isr_starts);
        odd |= odd_lists(&c->replicas, row + k, block, lengths, starts);
        if (layout == UPDATE_METADATA_ROWS) {
            odd |= not_zero(c->offline.lengths, row + k, block);
        } else {
            odd |= not_zero(c->adding.lengths, row + k, block);
            odd |= not_zero(c->removing.lengths, row + k, block);
        }
        if (layout == LEADER_AND_ISR_6_ROWS) odd |= not_zero(c->recovery_state, row + k, block);
        if (source->rows != NULL) odd |= other_rows(source->rows + s->position + k, block, row + k);
        if (odd) {
            n = k + __builtin_ctz(odd);
            break;
        }
        isr_starts = _mm512_add_epi32(isr_starts, _mm512_slli_epi32(isr_lengths, 4));
        starts = _mm512_add_epi32(starts, _mm512_slli_epi32(lengths, 4));
    }
    if (s->isr_start < 0 || s->isr_start + n * s->isr > c->isr.n_values) return 0;
    if (s->replicas_start < 0 || s->replicas_start + n * s->replicas > c->replicas.n_values) return 0;
    s->stop = s->position + n;
    return n;
}

static AVX512_ENTRY int64_t find_stretch_avx512(
    const RowSource *source, int64_t n, Stretch *s, RowLayout layout
) {
    return FOR_LAYOUT(layout, find_stretch, source, n, s);
}

/* ------------------------------------------------------------------------------------------- writing */

/* The columns of the next rows, the weave of their shape, and where their bytes are written. */
typedef struct {
    uint8_t *p;
    const int32_t *partition, *controller_epoch, *leader, *leader_epoch, *partition_epoch;
    const int32_t *isr, *replicas;
    const uint8_t *is_new;
    int64_t n_isr, n_replicas, size;
    __m512i places[4];
    __mmask64 third[3];
    __m128i marks;
} Shuttle;

static AVX512_INLINE __m512i put_register(const Shuttle *s, int z, __m512i a, __m512i b, __m512i c) {
    const __m512i from_two = _mm512_permutex2var_epi8(a, s->places[z], b);
    return _mm512_mask_permutexvar_epi8(from_two, s->third[z], s->places[z], c);
}

/* Write n (1 to 4) rows. WOVEN_REACH bytes must be free. */
static AVX512_INLINE void put_woven(Shuttle *s, int64_t n, RowLayout layout) {
    __m512i a = _mm512_castsi128_si512(load_few(s->partition, n));
    __m512i b = load_block(s->isr, (__mmask16)low_bits(n * s->n_isr));
    __m512i c = load_block(s->replicas, (__mmask16)low_bits(n * s->n_replicas));
    __m128i bytes = s->marks;
    a = _mm512_inserti32x4(a, load_few(s->controller_epoch, n), 1);
    a = _mm512_inserti32x4(a, load_few(s->leader, n), 2);
    a = _mm512_inserti32x4(a, load_few(s->leader_epoch, n), 3);
    b = _mm512_inserti32x4(b, load_few(s->partition_epoch, n), 3);
    if (layout != UPDATE_METADATA_ROWS && s->is_new != NULL) {
        const __m128i flags = _mm_maskz_loadu_epi8((__mmask16)low_bits(n), s->is_new);
        bytes = _mm_or_si128(bytes, _mm_min_epu8(flags, _mm_set1_epi8(1)));
        s->is_new += n;
    }
    c = _mm512_inserti32x4(c, bytes, 3);
    _mm512_storeu_si512(s->p, put_register(s, 0, a, b, c));
    _mm512_storeu_si512(s->p + 64, put_register(s, 1, a, b, c));
    _mm512_storeu_si512(s->p + 128, put_register(s, 2, a, b, c));
    if (layout != UPDATE_METADATA_ROWS && s->size > 192) {
        /* Only rows with long lists: the end of the last row, from its replicas on. */
        const __m512i left = _mm512_permutexvar_epi8(s->places[3], c);
        store_16(s->p + 192, _mm512_castsi512_si128(left));
    }
    s->p += n * (s->size / 4);
    s->partition += n;
    s->controller_epoch += n;
    s->leader += n;
    s->leader_epoch += n;
    s->partition_epoch += n;
    s->isr += n * s->n_isr;
    s->replicas += n * s->n_replicas;
}

/* Write n positions of a stretch from `skip` on. */
static AVX512_INLINE uint8_t *put_stretch(
    uint8_t *p, const PartitionColumns *c, const Stretch *stretch, int64_t skip, int64_t n,
    const uint8_t *is_new, RowLayout layout
) {
    const Weave *w = &weaves[layout][stretch->isr][stretch->replicas];
    const int64_t row = stretch->row + skip;
    Shuttle s;
    int64_t k;
    s.p = p;
    s.partition = c->partition + row;
    s.controller_epoch = c->controller_epoch + row;
    s.leader = c->leader + row;
    s.leader_epoch = c->leader_epoch + row;
    s.partition_epoch = c->partition_epoch + row;
    s.isr = c->isr.values + stretch->isr_start + skip * stretch->isr;
    s.replicas = c->replicas.values + stretch->replicas_start + skip * stretch->replicas;
    s.is_new = is_new;
    s.n_isr = stretch->isr;
    s.n_replicas = stretch->replicas;
    s.size = w->size;
    for (k = 0; k < 4; k++) s.places[k] = load_64(w->to_wire + 64 * k);
    for (k = 0; k < 3; k++) s.third[k] = w->is_third[k];
    s.marks = _mm_loadu_si128((const __m128i *)w->marks);
    for (; n >= 4; n -= 4) {
        /* Values are read faster than the other columns; without this, the loop would wait for them. */
        _mm_prefetch((const char *)s.isr + FETCH_AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)s.replicas + FETCH_AHEAD, _MM_HINT_T0);
        put_woven(&s, 4, layout);
    }
    if (n > 0) put_woven(&s, n, layout);
    return s.p;
}

/* Write n positions of a stretch from `position` on, each of WOVEN_ROW bytes at most. WOVEN_REACH bytes more
 * must be free. */
static AVX512_ENTRY uint8_t *put_stretch_avx512(
    uint8_t *p, const RowSource *source, const Stretch *s, int64_t position, int64_t n, RowLayout layout
) {
    const uint8_t *is_new = source->is_new == NULL ? NULL : source->is_new + position;
    return FOR_LAYOUT(layout, put_stretch, p, source->columns, s, position - s->position, n, is_new);
}

/* ------------------------------------------------------------------------------------------- reading */

/* Return 64 bytes of the picture from the wire bytes in three registers, or in four with `has_d`. */
static AVX512_INLINE __m512i get_register(
    __m512i places, __m512i a, __m512i b, __m512i c, __m512i d, int has_d
) {
    const __m512i from_two = _mm512_permutex2var_epi8(a, places, b);
    const __mmask64 others = _mm512_movepi8_mask(places);
    if (!has_d) return _mm512_mask_permutexvar_epi8(from_two, others, places, c);
    return _mm512_mask_blend_epi8(others, from_two, _mm512_permutex2var_epi8(c, places, d));
}

static AVX512_INLINE void fill_int32(int32_t *to, int64_t n, int64_t first, int64_t step) {
    __m512i v = steps(first, step);
    int64_t k;
    for (k = 0; k < n; k += BLOCK) {
        _mm512_storeu_si512(to + k, v);
        v = _mm512_add_epi32(v, _mm512_set1_epi32((int32_t)(BLOCK * step)));
    }
}

static AVX512_INLINE void fill_lists(ListFill *list, int64_t row, int64_t n, int64_t length) {
    fill_int32(list->starts + row, n, list->used, length);
    fill_int32(list->lengths + row, n, length, 0);
    list->used += n * length;
}

/* Read rows of the expected shape, whose weave is `w`, four at a time and `most` at most; returns how many.
 * First their fields and values, then the columns that follow from the shape. There must be WOVEN_REACH bytes at
 * each four. */
static AVX512_INLINE int64_t get_woven(
    const uint8_t *p, PartitionFill *o, int32_t topic, int64_t most, const Weave *w, RowLayout layout
) {
    const int has_d = layout != UPDATE_METADATA_ROWS;
    const __m512i to_a = load_64(w->from_wire), to_b = load_64(w->from_wire + 64);
    const __m512i to_c = load_64(w->from_wire + 128);
    const int64_t row = o->n, size = w->size, n_isr = 4 * o->shape.isr, n_replicas = 4 * o->shape.replicas;
    int32_t *isr = o->isr.values + o->isr.used, *replicas = o->replicas.values + o->replicas.used;
    int32_t *partition = o->partition + row, *controller_epoch = o->controller_epoch + row;
    int32_t *leader = o->leader + row, *leader_epoch = o->leader_epoch + row;
    int32_t *partition_epoch = o->partition_epoch + row, *recovery_state = o->recovery_state + row;
    uint8_t *flags = o->flags + row;
    __m512i marks[4];
    __mmask64 is_mark[4];
    int64_t k, n;
    for (k = 0; k < 4; k++) {
        marks[k] = load_64(w->on_wire + 64 * k);
        is_mark[k] = w->is_mark[k];
    }
    for (n = 0; n + 4 <= most; n += 4) {
        const __m512i z0 = load_64(p), z1 = load_64(p + 64), z2 = load_64(p + 128);
        const __m512i z3 = has_d ? load_64(p + 192) : z2;
        __mmask64 wrong = _mm512_mask_cmpneq_epu8_mask(is_mark[0], z0, marks[0]);
        __m512i a, b, c;
        wrong |= _mm512_mask_cmpneq_epu8_mask(is_mark[1], z1, marks[1]);
        wrong |= _mm512_mask_cmpneq_epu8_mask(is_mark[2], z2, marks[2]);
        if (has_d) wrong |= _mm512_mask_cmpneq_epu8_mask(is_mark[3], z3, marks[3]);
        if (wrong) break;
        a = get_register(to_a, z0, z1, z2, z3, has_d);
        b = get_register(to_b, z0, z1, z2, z3, has_d);
        c = get_register(to_c, z0, z1, z2, z3, has_d);
        store_16(partition + n, _mm512_castsi512_si128(a));
        store_16(controller_epoch + n, _mm512_extracti32x4_epi32(a, 1));
        store_16(leader + n, _mm512_extracti32x4_epi32(a, 2));
        store_16(leader_epoch + n, _mm512_extracti32x4_epi32(a, 3));
        store_16(partition_epoch + n, _mm512_extracti32x4_epi32(b, 3));
        _mm512_storeu_si512(isr, b);
        _mm512_storeu_si512(replicas, c);
        if (layout != UPDATE_METADATA_ROWS) {
            const __m128i bytes = _mm512_extracti32x4_epi32(c, 3);
            const int32_t four = _mm_cvtsi128_si32(_mm_min_epu8(bytes, _mm_set1_epi8(1)));
            memcpy(flags + n, &four, 4);
            if (layout == LEADER_AND_ISR_6_ROWS) {
                store_16(recovery_state + n, _mm_cvtepi8_epi32(_mm_srli_si128(bytes, 4)));
            }
        }
        p += size;
        isr += n_isr;
        replicas += n_replicas;
    }
    fill_int32(o->topic_row + row, n, topic, 0);
    fill_lists(&o->isr, row, n, o->shape.isr);
    fill_lists(&o->replicas, row, n, o->shape.replicas);
    if (layout == UPDATE_METADATA_ROWS) {
        fill_lists(&o->offline, row, n, 0);
    } else {
        fill_lists(&o->adding, row, n, 0);
        fill_lists(&o->removing, row, n, 0);
    }
    if (layout == LEADER_AND_ISR_4_ROWS) fill_int32(recovery_state, n, 0, 0);
    return n;
}

/* Return how many rows there are bytes and room for; 0: the next rows have no weave. */
static AVX512_INLINE int64_t most_woven(
    const uint8_t *p, const uint8_t *end, const PartitionFill *o, int64_t most
) {
    const RowShape *shape = &o->shape;
    const int64_t rows = (end - p - WOVEN_REACH) / WOVEN_ROW;
    const int64_t isr = (o->isr.room - o->isr.used) / WOVEN_LIST;
    const int64_t replicas = (o->replicas.room - o->replicas.used) / WOVEN_LIST;
    if (shape->run < 4 || shape->other || shape->removing) return 0;
    if (shape->isr > WOVEN_LIST || shape->replicas > WOVEN_LIST) return 0;
    if (most > rows) most = rows;
    if (most > isr) most = isr;
    return most > replicas ? replicas : most;
}

static AVX512_INLINE const uint8_t *get_any_rows(
    const uint8_t *p, const uint8_t *end, PartitionFill *o, int32_t topic, int64_t *left, RowLayout layout
) {
    int64_t n, some, most = *left;
    while (most > 0 && end - p >= FEW_ROWS_REACH && has_room(o, layout)) {
        some = most_woven(p, end, o, most);
        if (some >= 4) {
            n = get_woven(p, o, topic, some, &weaves[layout][o->shape.isr][o->shape.replicas], layout);
            /* There were four or more left, so the next ones have another shape. */
            if (some - n >= 4) o->shape.run = 0;
        } else {
            n = get_few_rows(p, o, topic, most, layout);
            if (n == 0) break;
        }
        o->n += n;
        most -= n;
        p += n * o->shape.size;
    }
    *left = most;
    return p;
}

static AVX512_ENTRY const uint8_t *get_rows_avx512(
    const uint8_t *p, const uint8_t *end, PartitionFill *fill, int32_t topic, int64_t *left, RowLayout layout
) {
    return FOR_LAYOUT(layout, get_any_rows, p, end, fill, topic, left);
}

#endif
#endif
