/* Four partition rows in one go, where the processor permutes bytes across 64-byte registers (AVX-512 VBMI).
 *
 * For four rows whose lists are equally long and short, where each wire byte comes from depends on those
 * lengths alone. So the rows go through a picture of three registers, the same in both directions:
 *
 *     0  partition x 4, controller epoch x 4, leader x 4, leader epoch x 4
 *    64  isr: the lists of the four rows after each other; at 112 partition epoch x 4
 *   128  replicas, likewise; at 176 is_new byte x 4, recovery state byte x 4; at 184 (writing) the bytes that
 *        are the same in every row, its marks: counts of lists, tags
 *
 * One permutation takes the picture to the wire and another one takes it back; a Weave holds both for one
 * pair of lengths. All other lists have to be empty.
 */
#ifndef CTRLCHAN_ROWS_AVX512_H
#define CTRLCHAN_ROWS_AVX512_H

#if defined(CTRLCHAN_WIDE) && defined(__x86_64__) && defined(__GNUC__)
#define CTRLCHAN_AVX512 1
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

enum {
    /* The longest list: four of them leave room for four more int32 in a register. */
    WOVEN_LIST = 3,
    PICTURE_ISR = 64,
    PICTURE_EPOCHS = 112,
    PICTURE_REPLICAS = 128,
    PICTURE_IS_NEW = 176,
    PICTURE_RECOVERY = 180,
    PICTURE_MARKS = 184,
    /* Bytes that a row takes at the most, and that may be touched behind the last one. */
    WOVEN_ROW = 20 + 4 + 8 * WOVEN_LIST + 3,
    WOVEN_REACH = 256,
    /* Rows whose lists are looked at together; fewer rows are not worth a stretch. */
    BLOCK = 16,
    SHORTEST_STRETCH = 8
};

typedef struct {
    uint8_t to_wire[256];   /* for each wire byte of four rows, its place in the picture */
    uint8_t from_wire[192]; /* for each byte of the picture, its place on the wire */
    uint8_t marks[16];      /* the last quarter of the picture's last register, marks only */
    uint8_t on_wire[256];   /* the marks where they stand on the wire */
    uint64_t is_mark[4];    /* which of those bytes are marks */
    uint64_t is_third[4];   /* which wire bytes come from the picture's last register */
    int64_t size;           /* wire bytes of four rows */
} Weave;

static Weave weaves[ROW_LAYOUTS][WOVEN_LIST + 1][WOVEN_LIST + 1];
static int avx512_works;

static void weave_byte(Weave *w, int picture) {
    const int wire = (int)w->size++;
    w->to_wire[wire] = (uint8_t)picture;
    w->is_third[wire / 64] |= (uint64_t)(picture >= 128) << (wire % 64);
    w->from_wire[picture] = (uint8_t)wire;
}

static void weave_int(Weave *w, int picture) {
    int k;
    for (k = 3; k >= 0; k--) weave_byte(w, picture + k);
}

static void weave_mark(Weave *w, int mark, int value) {
    w->marks[PICTURE_MARKS - PICTURE_IS_NEW + mark] = (uint8_t)value;
    w->on_wire[w->size] = (uint8_t)value;
    w->is_mark[w->size / 64] |= 1ull << (w->size % 64);
    weave_byte(w, PICTURE_MARKS + mark);
}

static void make_weave(Weave *w, RowLayout layout, int isr, int replicas) {
    int row, k;
    memset(w, 0, sizeof *w);
    for (row = 0; row < 4; row++) {
        for (k = 0; k < 4; k++) weave_int(w, 16 * k + 4 * row);
        weave_mark(w, 0, isr + 1);
        for (k = 0; k < isr; k++) weave_int(w, PICTURE_ISR + 4 * (row * isr + k));
        weave_int(w, PICTURE_EPOCHS + 4 * row);
        weave_mark(w, 1, replicas + 1);
        for (k = 0; k < replicas; k++) weave_int(w, PICTURE_REPLICAS + 4 * (row * replicas + k));
        weave_mark(w, 2, 1);
        if (layout != UPDATE_METADATA_ROWS) {
            weave_mark(w, 2, 1);
            weave_byte(w, PICTURE_IS_NEW + row);
        }
        if (layout == LEADER_AND_ISR_6_ROWS) weave_byte(w, PICTURE_RECOVERY + row);
        weave_mark(w, 3, 0);
    }
}

static void prepare_avx512(void) {
    int layout, isr, replicas;
    __builtin_cpu_init();
    avx512_works = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
    for (layout = 0; avx512_works && layout < ROW_LAYOUTS; layout++) {
        for (isr = 0; isr <= WOVEN_LIST; isr++) {
            for (replicas = 0; replicas <= WOVEN_LIST; replicas++) {
                make_weave(&weaves[layout][isr][replicas], (RowLayout)layout, isr, replicas);
            }
        }
    }
}

static ALWAYS_INLINE uint32_t low_bits(int64_t n) { return n < 32 ? (1u << n) - 1 : 0xffffffffu; }

static AVX512 ALWAYS_INLINE __m512i load_64(const void *p) { return _mm512_loadu_si512(p); }

/* n (1 to 4) elements of a column; what is behind them is not touched. */
static AVX512 ALWAYS_INLINE __m128i load_few(const int32_t *p, int64_t n) {
    return n == 4 ? _mm_loadu_si128((const __m128i *)p) : _mm_maskz_loadu_epi32((__mmask8)low_bits(n), p);
}

/* ------------------------------------------------------------------------------------------- sizing */

/* The first of `most` values that differs from `value`. */
static AVX512 __attribute__((noinline)) int64_t equal_values_avx512(const int32_t *values, int64_t most, int32_t value) {
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
        const __mmask16 odd = _mm512_mask_cmpneq_epi32_mask(block, _mm512_maskz_loadu_epi32(block, values + k), expected);
        if (odd) return k + __builtin_ctz(odd);
    }
    return most;
}

/* Of the 16 rows from `row` on that are in `block`, those whose lists do not have these lengths and starts. */
static AVX512 ALWAYS_INLINE __mmask16 odd_lists(
    const Lists *lists, int64_t row, __mmask16 block, __m512i lengths, __m512i starts
) {
    const __m512i l = _mm512_maskz_loadu_epi32(block, lists->lengths + row);
    const __m512i s = _mm512_maskz_loadu_epi32(block, lists->starts + row);
    return _mm512_mask_cmpneq_epi32_mask(block, l, lengths) | _mm512_mask_cmpneq_epi32_mask(block, s, starts);
}

/* Those for which a column (or NULL: none) does not say 0. */
static AVX512 ALWAYS_INLINE __mmask16 not_zero(const int32_t *column, int64_t row, __mmask16 block) {
    __m512i v;
    if (column == NULL) return 0;
    v = _mm512_maskz_loadu_epi32(block, column + row);
    return _mm512_test_epi32_mask(v, v);
}

/* Of the 16 positions from `rows` on that are in `block`, those that are not the successive rows from `row` on. */
static AVX512 ALWAYS_INLINE __mmask16 other_rows(const int64_t *rows, __mmask16 block, int64_t row) {
    const __m512i low = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), first = _mm512_set1_epi64(row);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(8));
    const __mmask8 few = (__mmask8)block, more = (__mmask8)(block >> 8);
    const __mmask8 a = _mm512_mask_cmpneq_epi64_mask(
        few, _mm512_maskz_loadu_epi64(few, rows), _mm512_add_epi64(first, low)
    );
    const __mmask8 b = _mm512_mask_cmpneq_epi64_mask(
        more, _mm512_maskz_loadu_epi64(more, rows + 8), _mm512_add_epi64(first, high)
    );
    return (__mmask16)(a | b << 8);
}

/* The stretch that begins at *s->position, of n positions at most; its length, 0 when there is none. */
static AVX512 ALWAYS_INLINE int64_t find_stretch(const RowSource *source, int64_t n, Stretch *s, RowLayout layout) {
    const PartitionColumns *c = source->columns;
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
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
    if ((uint64_t)s->isr > WOVEN_LIST || (uint64_t)s->replicas > WOVEN_LIST) return 0;
    isr_lengths = _mm512_set1_epi32((int32_t)s->isr);
    isr_starts = _mm512_add_epi32(_mm512_set1_epi32((int32_t)s->isr_start), _mm512_mullo_epi32(count, isr_lengths));
    lengths = _mm512_set1_epi32((int32_t)s->replicas);
    starts = _mm512_add_epi32(_mm512_set1_epi32((int32_t)s->replicas_start), _mm512_mullo_epi32(count, lengths));
    for (k = 0; k < n; k += BLOCK) {
        const __mmask16 block = (__mmask16)low_bits(n - k);
        __mmask16 odd = odd_lists(&c->isr, row + k, block, isr_lengths, isr_starts);
        odd |= odd_lists(&c->replicas, row + k, block, lengths, starts);
        if (layout == UPDATE_METADATA_ROWS) {
            odd |= not_zero(c->offline.lengths, row + k, block);
        } else {
            odd |= not_zero(c->adding.lengths, row + k, block) | not_zero(c->removing.lengths, row + k, block);
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

/* ------------------------------------------------------------------------------------------- writing */

/* Where the next rows are, and where they go. */
typedef struct {
    uint8_t *p;
    const int32_t *partition, *controller_epoch, *leader, *leader_epoch, *partition_epoch;
    const int32_t *isr, *replicas;
    const uint8_t *is_new;
} Shuttle;

/* n (1 to 4) rows with isr and replicas values each. */
static AVX512 ALWAYS_INLINE void put_woven(
    const Shuttle *at, int64_t k, int64_t n, int64_t isr, int64_t replicas, __m128i marks, const __m512i places[4],
    const __mmask64 third[3], int64_t size, RowLayout layout
) {
    __m512i a, b, c;
    a = _mm512_castsi128_si512(load_few(at->partition + k, n));
    a = _mm512_inserti32x4(a, load_few(at->controller_epoch + k, n), 1);
    a = _mm512_inserti32x4(a, load_few(at->leader + k, n), 2);
    a = _mm512_inserti32x4(a, load_few(at->leader_epoch + k, n), 3);
    b = _mm512_maskz_loadu_epi32((__mmask16)low_bits(n * isr), at->isr);
    b = _mm512_inserti32x4(b, load_few(at->partition_epoch + k, n), 3);
    if (layout != UPDATE_METADATA_ROWS && at->is_new != NULL) {
        const __m128i flags = _mm_maskz_loadu_epi8((__mmask16)low_bits(n), at->is_new + k);
        marks = _mm_or_si128(marks, _mm_min_epu8(flags, _mm_set1_epi8(1)));
    }
    c = _mm512_maskz_loadu_epi32((__mmask16)low_bits(n * replicas), at->replicas);
    c = _mm512_inserti32x4(c, marks, 3);
#define PUT_64(z) \
    _mm512_storeu_si512( \
        at->p + 64 * z, \
        _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(a, places[z], b), third[z], places[z], c) \
    )
    PUT_64(0);
    PUT_64(1);
    PUT_64(2);
#undef PUT_64
    /* More than three registers: that is the end of the last row's replicas and what follows them. */
    if (layout != UPDATE_METADATA_ROWS && size > 192) {
        const __m512i end = _mm512_permutexvar_epi8(places[3], c);
        _mm_storeu_si128((__m128i *)(at->p + 192), _mm512_castsi512_si128(end));
    }
}

/* n positions of a stretch from `skip` on. Touches less than 256 bytes behind them. */
static AVX512 ALWAYS_INLINE uint8_t *put_even_rows(
    uint8_t *p, const PartitionColumns *c, const Stretch *s, int64_t skip, int64_t n, const uint8_t *is_new,
    RowLayout layout
) {
    const int64_t row = s->row + skip, isr = s->isr, replicas = s->replicas;
    const Weave *w = &weaves[layout][isr][replicas];
    const __m128i marks = _mm_loadu_si128((const __m128i *)w->marks);
    const int64_t size = w->size;
    __m512i places[4];
    __mmask64 third[3];
    Shuttle at;
    int64_t k;
    for (k = 0; k < 4; k++) places[k] = load_64(w->to_wire + 64 * k);
    for (k = 0; k < 3; k++) third[k] = w->is_third[k];
    at.p = p;
    at.partition = c->partition + row;
    at.controller_epoch = c->controller_epoch + row;
    at.leader = c->leader + row;
    at.leader_epoch = c->leader_epoch + row;
    at.partition_epoch = c->partition_epoch + row;
    at.is_new = is_new;
    at.isr = c->isr.values + s->isr_start + skip * isr;
    at.replicas = c->replicas.values + s->replicas_start + skip * replicas;
    for (k = 0; k + 4 <= n; k += 4) {
        /* The values move faster than the other columns: without this, they are waited for. */
        _mm_prefetch((const char *)at.isr + 512, _MM_HINT_T0);
        _mm_prefetch((const char *)at.replicas + 512, _MM_HINT_T0);
        put_woven(&at, k, 4, isr, replicas, marks, places, third, size, layout);
        at.p += size;
        at.isr += 4 * isr;
        at.replicas += 4 * replicas;
    }
    if (k < n) {
        put_woven(&at, k, n - k, isr, replicas, marks, places, third, size, layout);
        at.p += (n - k) * (size / 4);
    }
    return at.p;
}

/* ------------------------------------------------------------------------------------------- reading */

/* The weave for rows of this shape, NULL when there is none. */
static ALWAYS_INLINE const Weave *weave_for(const RowShape *shape, RowLayout layout) {
    if (shape->size == 0 || shape->other || shape->removing) return NULL;
    if (shape->isr > WOVEN_LIST || shape->replicas > WOVEN_LIST) return NULL;
    return &weaves[layout][shape->isr][shape->replicas];
}

static AVX512 ALWAYS_INLINE void fill_int32(int32_t *to, int64_t n, int32_t first, int32_t step) {
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i v = _mm512_add_epi32(_mm512_set1_epi32(first), _mm512_mullo_epi32(count, _mm512_set1_epi32(step)));
    int64_t k;
    for (k = 0; k < n; k += 16) {
        _mm512_storeu_si512(to + k, v);
        v = _mm512_add_epi32(v, _mm512_set1_epi32(16 * step));
    }
}

static AVX512 ALWAYS_INLINE void fill_lists(ListFill *list, int64_t row, int64_t n, int64_t length) {
    fill_int32(list->starts + row, n, (int32_t)list->used, (int32_t)length);
    fill_int32(list->lengths + row, n, (int32_t)length, 0);
    list->used += n * length;
}

/* Rows of this weave's shape, four at a time and at most `most`; the number read. They may touch 256 bytes from p
 * on and every fourth row after it. */
static AVX512 ALWAYS_INLINE int64_t get_even_rows(
    const uint8_t *p, PartitionFill *o, int32_t topic, int64_t most, const Weave *w, RowLayout layout
) {
    const int64_t row = o->n, isr = 4 * o->shape.isr, replicas = 4 * o->shape.replicas, size = w->size;
    const __m512i place_a = load_64(w->from_wire), place_b = load_64(w->from_wire + 64);
    const __m512i place_c = load_64(w->from_wire + 128);
    const __m512i mark0 = load_64(w->on_wire), mark1 = load_64(w->on_wire + 64), mark2 = load_64(w->on_wire + 128);
    const __m512i mark3 = load_64(w->on_wire + 192);
    const __mmask64 is0 = w->is_mark[0], is1 = w->is_mark[1], is2 = w->is_mark[2], is3 = w->is_mark[3];
    const __mmask64 high_a = _mm512_movepi8_mask(place_a), high_b = _mm512_movepi8_mask(place_b);
    const __mmask64 high_c = _mm512_movepi8_mask(place_c);
    int32_t *partition = o->partition + row, *controller_epoch = o->controller_epoch + row;
    int32_t *leader = o->leader + row, *leader_epoch = o->leader_epoch + row;
    int32_t *partition_epoch = o->partition_epoch + row, *recovery_state = o->recovery_state + row;
    uint8_t *flags = o->flags + row;
    int32_t *isr_values = o->isr.values + o->isr.used, *replica_values = o->replicas.values + o->replicas.used;
    int64_t n;
    for (n = 0; n + 4 <= most; n += 4) {
        const __m512i z0 = load_64(p), z1 = load_64(p + 64), z2 = load_64(p + 128);
        __m512i a, b, c;
        __mmask64 wrong = _mm512_mask_cmpneq_epu8_mask(is0, z0, mark0);
        wrong |= _mm512_mask_cmpneq_epu8_mask(is1, z1, mark1);
        wrong |= _mm512_mask_cmpneq_epu8_mask(is2, z2, mark2);
        if (layout == UPDATE_METADATA_ROWS) {
            if (wrong) break;
            a = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(z0, place_a, z1), high_a, place_a, z2);
            b = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(z0, place_b, z1), high_b, place_b, z2);
            c = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(z0, place_c, z1), high_c, place_c, z2);
        } else {
            const __m512i z3 = load_64(p + 192);
            wrong |= _mm512_mask_cmpneq_epu8_mask(is3, z3, mark3);
            if (wrong) break;
            a = _mm512_permutex2var_epi8(z0, place_a, z1);
            a = _mm512_mask_blend_epi8(high_a, a, _mm512_permutex2var_epi8(z2, place_a, z3));
            b = _mm512_permutex2var_epi8(z0, place_b, z1);
            b = _mm512_mask_blend_epi8(high_b, b, _mm512_permutex2var_epi8(z2, place_b, z3));
            c = _mm512_permutex2var_epi8(z0, place_c, z1);
            c = _mm512_mask_blend_epi8(high_c, c, _mm512_permutex2var_epi8(z2, place_c, z3));
        }
        _mm_storeu_si128((__m128i *)(partition + n), _mm512_castsi512_si128(a));
        _mm_storeu_si128((__m128i *)(controller_epoch + n), _mm512_extracti32x4_epi32(a, 1));
        _mm_storeu_si128((__m128i *)(leader + n), _mm512_extracti32x4_epi32(a, 2));
        _mm_storeu_si128((__m128i *)(leader_epoch + n), _mm512_extracti32x4_epi32(a, 3));
        _mm_storeu_si128((__m128i *)(partition_epoch + n), _mm512_extracti32x4_epi32(b, 3));
        _mm512_storeu_si512(isr_values, b);
        _mm512_storeu_si512(replica_values, c);
        if (layout != UPDATE_METADATA_ROWS) {
            const __m128i bytes = _mm512_extracti32x4_epi32(c, 3);
            const int32_t four = _mm_cvtsi128_si32(_mm_min_epu8(bytes, _mm_set1_epi8(1)));
            memcpy(flags + n, &four, 4);
            if (layout == LEADER_AND_ISR_6_ROWS) {
                _mm_storeu_si128((__m128i *)(recovery_state + n), _mm_cvtepi8_epi32(_mm_srli_si128(bytes, 4)));
            }
        }
        p += size;
        isr_values += isr;
        replica_values += replicas;
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

static AVX512 ALWAYS_INLINE const uint8_t *get_any_rows(
    const uint8_t *p, const uint8_t *end, PartitionFill *o, int32_t topic, int64_t *left, RowLayout layout
) {
    int64_t n, most = *left;
    while (most > 0 && end - p >= FEW_ROWS_REACH && has_room(o, layout)) {
        const Weave *w = weave_for(&o->shape, layout);
        n = 0;
        if (w != NULL) {
            /* As many as there is room for: bytes behind the last one, values of the lists. */
            int64_t some = most;
            if ((end - p - WOVEN_REACH) / WOVEN_ROW < some) some = (end - p - WOVEN_REACH) / WOVEN_ROW;
            if ((o->isr.room - o->isr.used) / 4 < some) some = (o->isr.room - o->isr.used) / 4;
            if ((o->replicas.room - o->replicas.used) / 4 < some) some = (o->replicas.room - o->replicas.used) / 4;
            n = get_even_rows(p, o, topic, some, w, layout);
        }
        if (n == 0) {
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

/* The ways in, each with one copy for each layout. */

static AVX512 __attribute__((noinline)) int64_t find_stretch_avx512(
    const RowSource *source, int64_t n, Stretch *s, RowLayout layout
) {
    return FOR_LAYOUT(layout, find_stretch, source, n, s);
}

static AVX512 __attribute__((noinline)) uint8_t *put_stretch_avx512(
    uint8_t *p, const RowSource *source, const Stretch *s, int64_t position, int64_t n, RowLayout layout
) {
    const uint8_t *is_new = source->is_new == NULL ? NULL : source->is_new + position;
    return FOR_LAYOUT(layout, put_even_rows, p, source->columns, s, position - s->position, n, is_new);
}

static AVX512 __attribute__((noinline)) const uint8_t *get_rows_avx512(
    const uint8_t *p, const uint8_t *end, PartitionFill *fill, int32_t topic, int64_t *left, RowLayout layout
) {
    return FOR_LAYOUT(layout, get_any_rows, p, end, fill, topic, left);
}

#endif
#endif
