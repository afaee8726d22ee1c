/* Big-endian bytes, Kafka's varints and UTF-8: the few things that Cython cannot say well.
 *
 * Every load and store goes through memcpy, so nothing here needs alignment and nothing breaks the
 * aliasing rules; compilers turn each into one instruction. Callers check bounds.
 */
#ifndef CTRLCHAN_BYTES_H
#define CTRLCHAN_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#include <stdlib.h>
#define swap16 _byteswap_ushort
#define swap32 _byteswap_ulong
#define swap64 _byteswap_uint64
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define swap16(x) (x)
#define swap32(x) (x)
#define swap64(x) (x)
#define CTRLCHAN_BIG_ENDIAN 1
#else
#define swap16 __builtin_bswap16
#define swap32 __builtin_bswap32
#define swap64 __builtin_bswap64
#endif

static inline void put_i16(uint8_t *p, int16_t v) { uint16_t u = swap16((uint16_t)v); memcpy(p, &u, 2); }
static inline void put_i32(uint8_t *p, int32_t v) { uint32_t u = swap32((uint32_t)v); memcpy(p, &u, 4); }
static inline void put_i64(uint8_t *p, int64_t v) { uint64_t u = swap64((uint64_t)v); memcpy(p, &u, 8); }
static inline int16_t get_i16(const uint8_t *p) { uint16_t u; memcpy(&u, p, 2); return (int16_t)swap16(u); }
static inline int32_t get_i32(const uint8_t *p) { uint32_t u; memcpy(&u, p, 4); return (int32_t)swap32(u); }
static inline int64_t get_i64(const uint8_t *p) { uint64_t u; memcpy(&u, p, 8); return (int64_t)swap64(u); }

/* Two int32 in one swap: swapping all eight bytes also exchanges the halves, the rotation puts them back. */
static inline uint64_t swap_pair(uint64_t u) {
#ifdef CTRLCHAN_BIG_ENDIAN
    return u;
#else
    u = swap64(u);
    return (u << 32) | (u >> 32);
#endif
}

/* Sixteen bytes at a time. Both architectures have a byte shuffle in their baseline (x86-64-v2, AArch64);
 * without one, plain loops do the same. */
#if defined(__SSSE3__)
#include <tmmintrin.h>
#define CTRLCHAN_WIDE 1
typedef __m128i wide;
static inline wide wide_load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
static inline void wide_store(void *p, wide v) { _mm_storeu_si128((__m128i *)p, v); }
static inline wide wide_shuffle(wide v, wide indexes) { return _mm_shuffle_epi8(v, indexes); }
static inline wide wide_four(int32_t a, int32_t b, int32_t c, int32_t d) { return _mm_setr_epi32(a, b, c, d); }
#elif defined(__aarch64__) && !defined(CTRLCHAN_BIG_ENDIAN)
#include <arm_neon.h>
#define CTRLCHAN_WIDE 1
typedef uint8x16_t wide;
static inline wide wide_load(const void *p) { return vld1q_u8((const uint8_t *)p); }
static inline void wide_store(void *p, wide v) { vst1q_u8((uint8_t *)p, v); }
static inline wide wide_shuffle(wide v, wide indexes) { return vqtbl1q_u8(v, indexes); }
static inline wide wide_four(int32_t a, int32_t b, int32_t c, int32_t d) {
    const int32_t four[4] = {a, b, c, d};
    return wide_load(four);
}
#endif

#ifdef CTRLCHAN_WIDE
/* Shuffle indexes (0x80 and above: zero): swap four int32; swap three and move them up one byte. */
static const uint8_t SWAP_FOUR[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
static const uint8_t SWAP_THREE_UP[16] = {0xff, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 0xff, 0xff, 0xff};
#endif

static inline void put_four(uint8_t *p, int32_t a, int32_t b, int32_t c, int32_t d) {
#ifdef CTRLCHAN_WIDE
    wide_store(p, wide_shuffle(wide_four(a, b, c, d), wide_load(SWAP_FOUR)));
#else
    put_i32(p, a);
    put_i32(p + 4, b);
    put_i32(p + 8, c);
    put_i32(p + 12, d);
#endif
}

/* A compact list of at most three int32 with its count byte, in one store of 16 bytes: reads 16 bytes at
 * `values` and writes 16 at `p`, whatever `n` is; what lies behind the list is for the next field to
 * overwrite. Returns 0, with nothing done, where there is no byte shuffle. */
static inline int put_short_list(uint8_t *p, const int32_t *values, int64_t n) {
#ifdef CTRLCHAN_WIDE
    wide_store(p, wide_shuffle(wide_load(values), wide_load(SWAP_THREE_UP)));
    *p = (uint8_t)(n + 1);
    return 1;
#else
    return 0;
#endif
}

/* n int32 between native and wire order (the same in both directions). Replica lists are short: pairs
 * beat a vector loop's set-up. */
static inline void swap_ints(void *to, const void *from, int64_t n) {
    uint8_t *out = (uint8_t *)to;
    const uint8_t *in = (const uint8_t *)from;
    uint64_t u;
    uint32_t v;
    while (n >= 2) {
        memcpy(&u, in, 8);
        u = swap_pair(u);
        memcpy(out, &u, 8);
        in += 8;
        out += 8;
        n -= 2;
    }
    if (n) {
        memcpy(&v, in, 4);
        v = swap32(v);
        memcpy(out, &v, 4);
    }
}

static inline int uvarint_size(uint32_t v) {
    return v < (1u << 7) ? 1 : v < (1u << 14) ? 2 : v < (1u << 21) ? 3 : v < (1u << 28) ? 4 : 5;
}

static inline uint8_t *put_uvarint(uint8_t *p, uint32_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Bytes taken by an unsigned varint at p (1 to 5), 0 when it is cut, -1 when it does not fit 32 bits. */
static inline int get_uvarint(const uint8_t *p, const uint8_t *end, uint32_t *value) {
    uint32_t v = 0;
    int i;
    for (i = 0; i < 5; i++) {
        if (p + i >= end) return 0;
        if (i == 4 && p[i] > 0x0f) return -1;
        v |= (uint32_t)(p[i] & 0x7f) << (7 * i);
        if (!(p[i] & 0x80)) {
            *value = v;
            return i + 1;
        }
    }
    return -1;
}

/* Well-formed UTF-8 as Unicode's table 3-7 defines it: no overlong forms, no surrogates, at most U+10FFFF. */
static inline int utf8_valid(const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    uint64_t eight;
    while (p < end) {
        if (end - p >= 8) {
            memcpy(&eight, p, 8);
            if (!(eight & 0x8080808080808080ull)) {
                p += 8;
                continue;
            }
        }
        if (p[0] < 0x80) {
            p += 1;
        } else if (p[0] < 0xc2) {
            return 0;
        } else if (p[0] < 0xe0) {
            if (end - p < 2 || (p[1] & 0xc0) != 0x80) return 0;
            p += 2;
        } else if (p[0] < 0xf0) {
            if (end - p < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80) return 0;
            if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
            if (p[0] == 0xed && p[1] >= 0xa0) return 0;
            p += 3;
        } else if (p[0] < 0xf5) {
            if (end - p < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80) return 0;
            if (p[0] == 0xf0 && p[1] < 0x90) return 0;
            if (p[0] == 0xf4 && p[1] >= 0x90) return 0;
            p += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

#endif
