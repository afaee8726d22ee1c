/* CRC-32C (Castagnoli), as record batches and producer snapshots use it.
 *
 * One CRC instruction waits three cycles for the one before it, so long data is read as three streams at
 * once. The CRCs of the streams are joined by tables that append zeros to a CRC (Mark Adler's scheme).
 * crc32c_start fills the tables; it runs once, before any other function.
 */
#ifndef CTRLCHAN_CRC32C_H
#define CTRLCHAN_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#define CRC32C_STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC32C_STEP1(crc, byte) (_mm_crc32_u8((crc), (byte)))
#elif defined(__ARM_FEATURE_CRC32) && defined(__aarch64__)
#include <arm_acle.h>
#define CRC32C_STEP8(crc, word) (__crc32cd((crc), (word)))
#define CRC32C_STEP1(crc, byte) (__crc32cb((crc), (byte)))
#endif

#define CRC32C_POLYNOMIAL 0x82f63b78u /* bits reversed */

/* Bytes of one stream: long ones for large batches, short ones for the rest. */
#define CRC32C_LONG 4096
#define CRC32C_SHORT 256

static uint32_t crc32c_after_long[4][256], crc32c_after_short[4][256], crc32c_bytes[256];

/* Append one zero byte to a CRC. */
static inline uint32_t crc32c_zero(uint32_t crc) { return crc32c_bytes[crc & 0xff] ^ (crc >> 8); }

/* Append as many zeros as the table is for. */
static inline uint32_t crc32c_zeros(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

static void crc32c_fill(uint32_t table[4][256], size_t zeros) {
    uint32_t bits[32];
    int i, k, b;
    size_t n;
    /* Appending zeros is linear: the result for a CRC is the XOR of the results for its bits. */
    for (i = 0; i < 32; i++) {
        bits[i] = (uint32_t)1 << i;
        for (n = 0; n < zeros; n++) bits[i] = crc32c_zero(bits[i]);
    }
    for (k = 0; k < 4; k++) {
        for (i = 0; i < 256; i++) {
            table[k][i] = 0;
            for (b = 0; b < 8; b++) {
                if (i >> b & 1) table[k][i] ^= bits[8 * k + b];
            }
        }
    }
}

static void crc32c_start(void) {
    int i, k;
    for (i = 0; i < 256; i++) {
        uint32_t crc = (uint32_t)i;
        for (k = 0; k < 8; k++) crc = (crc >> 1) ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_bytes[i] = crc;
    }
    crc32c_fill(crc32c_after_long, CRC32C_LONG);
    crc32c_fill(crc32c_after_short, CRC32C_SHORT);
}

/* Continue a CRC byte by byte, with the table. */
static inline uint32_t crc32c_by_table(uint32_t crc, const uint8_t *p, size_t n) {
    while (n--) crc = crc32c_bytes[(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return crc;
}

#ifdef CRC32C_STEP8
/* Continue a CRC over blocks of three streams; moves p and n. */
static inline uint32_t crc32c_three(
    uint32_t crc, const uint8_t **p, size_t *n, size_t stream, uint32_t table[4][256]
) {
    const uint8_t *q = *p, *end;
    uint64_t a, b, c;
    uint32_t second, third;
    while (*n >= 3 * stream) {
        second = third = 0;
        for (end = q + stream; q < end; q += 8) {
            memcpy(&a, q, 8);
            memcpy(&b, q + stream, 8);
            memcpy(&c, q + 2 * stream, 8);
            crc = CRC32C_STEP8(crc, a);
            second = CRC32C_STEP8(second, b);
            third = CRC32C_STEP8(third, c);
        }
        crc = crc32c_zeros(table, crc) ^ second;
        crc = crc32c_zeros(table, crc) ^ third;
        q += 2 * stream;
        *n -= 3 * stream;
    }
    *p = q;
    return crc;
}
#endif

/* Return the CRC-32C of n bytes. */
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu;
#ifdef CRC32C_STEP8
    uint64_t word;
    crc = crc32c_three(crc, &p, &n, CRC32C_LONG, crc32c_after_long);
    crc = crc32c_three(crc, &p, &n, CRC32C_SHORT, crc32c_after_short);
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        crc = CRC32C_STEP8(crc, word);
    }
    for (; n; n--) crc = CRC32C_STEP1(crc, *p++);
#else
    crc = crc32c_by_table(crc, p, n);
#endif
    return ~crc;
}

#endif
