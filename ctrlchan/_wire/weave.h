/* How four partition rows look in registers and on the wire, for processors that permute bytes across 64-byte
 * registers (AVX-512 VBMI).
 *
 * When the lists of all rows have the same short lengths, these alone decide where each wire byte comes from.
 * So four rows at a time are a picture of three registers, the same for writing and reading:
 *
 *     0  partition x 4, controller epoch x 4, leader x 4, leader epoch x 4
 *    64  isr, the lists of the four rows after each other; from 112 partition epoch x 4
 *   128  replicas, likewise; from 176 is_new byte x 4, recovery state byte x 4; when it is written, from 184
 *        the bytes that are the same in every row, its marks: counts of lists, tags
 *
 * One permutation turns the picture into wire bytes and another one turns them back; a Weave has both for one
 * pair of lengths. All other lists are empty.
 */
#ifndef CTRLCHAN_WEAVE_H
#define CTRLCHAN_WEAVE_H

#include <stdint.h>
#include <string.h>

enum {
    /* The longest list: four of them leave room for four more int32 in their register. */
    WOVEN_LIST = 3,
    /* The most bytes of a row, and of four rows with the register at their end. */
    WOVEN_ROW = 20 + 4 + 8 * WOVEN_LIST + 3,
    WOVEN_REACH = 256,
    PICTURE_ISR = 64,
    PICTURE_EPOCHS = 112,
    PICTURE_REPLICAS = 128,
    PICTURE_IS_NEW = 176,
    PICTURE_RECOVERY = 180,
    PICTURE_MARKS = 184
};

typedef struct {
    uint8_t to_wire[256];   /* for each wire byte of four rows, its place in the picture */
    uint8_t from_wire[192]; /* for each byte of the picture, its place on the wire */
    uint8_t marks[16];      /* the last quarter of the picture with only its marks set */
    uint8_t on_wire[256];   /* the marks at their places on the wire */
    uint64_t is_mark[4];    /* which wire bytes are marks */
    uint64_t is_third[4];   /* which wire bytes come from the picture's third register */
    int64_t size;           /* wire bytes of four rows */
} Weave;

static void weave_byte(Weave *w, int picture) {
    const int wire = (int)w->size++;
    w->to_wire[wire] = (uint8_t)picture;
    w->is_third[wire / 64] |= (uint64_t)(picture >= PICTURE_REPLICAS) << (wire % 64);
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

/* Indexed by layout and by the lengths of isr and replicas. */
static Weave weaves[ROW_LAYOUTS][WOVEN_LIST + 1][WOVEN_LIST + 1];

static void make_weaves(void) {
    int layout, isr, replicas;
    for (layout = 0; layout < ROW_LAYOUTS; layout++) {
        for (isr = 0; isr <= WOVEN_LIST; isr++) {
            for (replicas = 0; replicas <= WOVEN_LIST; replicas++) {
                make_weave(&weaves[layout][isr][replicas], (RowLayout)layout, isr, replicas);
            }
        }
    }
}

#endif
