/* CRC-32 (IEEE 802.3), as records of format 0 and 1 have it. Eight bytes at a time, each with its own table.
 *
 * crc32_start fills the tables; it runs once, before crc32.
 */
#ifndef CTRLCHAN_CRC32_H
#define CTRLCHAN_CRC32_H

#include <stddef.h>
#include <stdint.h>

#define CRC32_POLYNOMIAL 0xedb88320u /* bits reversed */

static uint32_t crc32_tables[8][256];

static void crc32_start(void) {
    int i, k;
    for (i = 0; i < 256; i++) {
        uint32_t crc = (uint32_t)i;
        for (k = 0; k < 8; k++) crc = (crc >> 1) ^ (crc & 1 ? CRC32_POLYNOMIAL : 0);
        crc32_tables[0][i] = crc;
    }
    /* The CRC of a byte that k zeros follow. */
    for (k = 1; k < 8; k++) {
        for (i = 0; i < 256; i++) {
            uint32_t crc = crc32_tables[k - 1][i];
            crc32_tables[k][i] = crc32_tables[0][crc & 0xff] ^ (crc >> 8);
        }
    }
}

/* Return the CRC-32 of n bytes. */
static uint32_t crc32(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc32_tables[7][low & 0xff] ^ crc32_tables[6][low >> 8 & 0xff] ^ crc32_tables[5][low >> 16 & 0xff]
            ^ crc32_tables[4][low >> 24] ^ crc32_tables[3][p[4]] ^ crc32_tables[2][p[5]] ^ crc32_tables[1][p[6]]
            ^ crc32_tables[0][p[7]];
    }
    for (; n; n--) crc = crc32_tables[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return ~crc;
}

#endif
