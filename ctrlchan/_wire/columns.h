/* Columns as C structs: those that are written, and those that are being filled. NumPy owns the memory. */
#ifndef CTRLCHAN_COLUMNS_H
#define CTRLCHAN_COLUMNS_H

#include <stdint.h>

/* n lists of int32: list i is values[starts[i] : starts[i] + lengths[i]]. In an absent column lengths is NULL
 * and all lists are empty. */
typedef struct {
    int64_t n;
    const int32_t *starts;
    const int32_t *lengths;
    const int32_t *values;
    int64_t n_values;
} Lists;

typedef struct {
    const int32_t *topic_row;
    const int32_t *partition;
    const int32_t *controller_epoch;
    const int32_t *leader;
    const int32_t *leader_epoch;
    const int32_t *partition_epoch;
    const int32_t *recovery_state;
    Lists isr;
    Lists replicas;
    Lists adding;
    Lists removing;
    Lists offline;
} PartitionColumns;

/* A stretch: positions `position` to `stop` of a message, which are the successive rows from `row` on and are
 * even. All have isr and replicas of the same lengths, one after the other in their values from the given
 * starts on, empty other lists and a recovery state of 0. This is checked when the message is sized. If the
 * columns change later, these lists are still within their values. */
typedef struct {
    int64_t position, stop, row;
    int64_t isr, isr_start;
    int64_t replicas, replicas_start;
} Stretch;

/* The rows of a message: position i is row rows[i], or row i where rows is NULL. is_new (NULL: all false)
 * is indexed by position. */
typedef struct {
    const PartitionColumns *columns;
    int64_t n_columns;
    const int64_t *rows;
    const uint8_t *is_new;
    /* In ascending order. Those before `next` end before the position that is being written. */
    Stretch *stretches;
    int64_t n_stretches, next;
} RowSource;

enum {
    /* Elements that a column being filled has behind its room, so that whole vectors can be stored at its end. */
    FILL_SLACK = 16,
    /* Values that a list column must have room for, or the plain loops read its next rows. The vectors of
     * four short lists store no more than that. */
    FEW_LISTS_ROOM = 32
};

/* A list column being filled: `used` of `room` values are taken. */
typedef struct {
    int32_t *starts;
    int32_t *lengths;
    int32_t *values;
    int64_t used;
    int64_t room;
} ListFill;

/* The expected shape of the next rows on the wire: the lengths of their lists, and where in a row the lists
 * begin. Size 0: no shape is expected. `run`: 4 when the last four rows that were compared all had it, else 0. */
typedef struct {
    int64_t isr, replicas, other, removing;
    int64_t at_replicas, at_other, at_removing, at_bytes, size;
    int64_t run;
} RowShape;

/* Columns being filled: n of `room` rows are filled. Columns that the message does not have are NULL. */
typedef struct {
    int64_t n;
    int64_t room;
    int32_t *topic_row;
    int32_t *partition;
    int32_t *controller_epoch;
    int32_t *leader;
    int32_t *leader_epoch;
    int32_t *partition_epoch;
    int32_t *recovery_state;
    ListFill isr;
    ListFill replicas;
    ListFill adding;
    ListFill removing;
    ListFill offline;
    /* A byte column: is_new of LeaderAndIsr, delete of StopReplica. */
    uint8_t *flags;
    /* The shape of the row before, which the next row probably has, too. */
    RowShape shape;
} PartitionFill;

/* Exactly one load: other threads may change columns and buffers, and the value that is checked must be the
 * value that is used. */
static inline int32_t once_i32(const int32_t *p) { return *(const volatile int32_t *)p; }
static inline int64_t once_i64(const int64_t *p) { return *(const volatile int64_t *)p; }
static inline uint8_t once_u8(const uint8_t *p) { return *(const volatile uint8_t *)p; }

/* The row at a position; -1 when the row is out of range. */
static inline int64_t row_at(const RowSource *s, int64_t position) {
    const int64_t row = s->rows == NULL ? position : once_i64(s->rows + position);
    return row >= 0 && row < s->n_columns ? row : -1;
}

#endif
