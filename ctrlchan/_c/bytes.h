/* Big-endian bytes, Kafka's varints and UTF-8, in C because Cython has no good form for them.
 *
 * Every load and store is a memcpy, so nothing here needs alignment or breaks the aliasing rules; compilers
 * turn each into one instruction. Callers check bounds.
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

/* Swap two int32 at once: swapping eight bytes also exchanges the halves, and the rotation undoes that. */
static inline uint64_t swap_pair(uint64_t u) {
#ifdef CTRLCHAN_BIG_ENDIAN
    return u;
#else
    u = swap64(u);
    return (u << 32) | (u >> 32);
#endif
}

/* Convert n int32 between native and wire order (the same in both directions). Replica lists are short, so
 * pairs are faster than a vector loop with its set-up. */
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

/* Copy n bytes; the buffers end at p_end and from_end. Names are short, so two vectors are faster than a call
 * of memcpy. */
static inline void put_bytes(
    uint8_t *p, const uint8_t *p_end, const uint8_t *from, const uint8_t *from_end, int64_t n
) {
    if (n <= 32 && p_end - p >= 32 && from_end - from >= 32) {
        memcpy(p, from, 32);
    } else {
        memcpy(p, from, (size_t)n);
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

/* Read an unsigned varint at p; returns its bytes (1 to 5), 0 when it is cut, -1 when it exceeds 32 bits. */
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

/* Whether all bytes are ASCII. Loads overlap at the end, so a short name costs two of them and no loop. */
static inline int is_ascii(const uint8_t *p, int64_t n) {
    uint64_t eight, seen = 0;
    uint32_t four, last;
    int64_t i;
    if (n >= 8) {
        for (i = 0; i + 8 <= n; i += 8) {
            memcpy(&eight, p + i, 8);
            seen |= eight;
        }
        memcpy(&eight, p + n - 8, 8);
        return !((seen | eight) & 0x8080808080808080ull);
    }
    if (n >= 4) {
        memcpy(&four, p, 4);
        memcpy(&last, p + n - 4, 4);
        return !((four | last) & 0x80808080u);
    }
    return n <= 0 || !((p[0] | p[n / 2] | p[n - 1]) & 0x80);
}

/* Whether the bytes are UTF-8 as Unicode's table 3-7 defines it: no overlong forms, no surrogates, at most
 * U+10FFFF. */
static inline int utf8_valid(const uint8_t *p, int64_t n) {
    const uint8_t *end = p + n;
    if (is_ascii(p, n)) return 1;
    while (p < end) {
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
