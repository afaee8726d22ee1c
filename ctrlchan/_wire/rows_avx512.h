/* Encoding of many partition rows at a time in vectors of 64 bytes (AVX-512 with VBMI), as weave.h describes.
 *
 * rows_wide.h (16 bytes) writes all other rows and reads all rows. Encoding 100,000 rows of UpdateMetadata v8
 * takes 0.30 ms instead of 0.79 ms and a push to 3 brokers 7.2 ms instead of 8.0. Decoding in the same way was
 * faster for a message in the cache (0.24 ms, not 0.49), but not in pushes or in the codec suite (0.70, not 0.73).
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

#endif
#endif
