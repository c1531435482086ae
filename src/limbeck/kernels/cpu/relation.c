/* Divergence of token relations and its gradient, of vectors in bfloat16, computed in float32: see relation.py.
 *
 * One head of one sample at a time, in memory that stays in a core's cache: both models' logits of some rows, one pass
 * for the exponentials and the sums of a row, one for its gradient. Logits are of pairs, see pairs.h, whose products are
 * exact; the gradient is multiplied in float32.
 */
#include "pairs.h"
#include "team.h"

#define ROWS 8 /* that go through a step together */

typedef struct {
    /* [samples, tokens, width], bfloat16; strides of samples and tokens in elements, width is dense. */
    const uint16_t *data;
    int64_t sample, token;
} stream;

typedef struct {
    stream student_a, student_b, teacher_a, teacher_b;
    float *of_a, *of_b;       /* gradients [samples, tokens, width], dense; one where a is b, none where none is wanted */
    const int64_t *samples;   /* index and length of each */
    const int64_t *places;    /* valid tokens of each, [samples, tokens]; none: they are the first */
    double *sums;             /* of each head of each sample: sum of p_T D, and the product of s_S / s_T as m * 2^n */
    int64_t tokens, heads, own, other; /* own, other: head sizes of student and teacher */
    float own_scale, other_scale;      /* factors of their logits */
    int64_t block;            /* logits in work; at least a row of the longest sample */
} relation;

static void load(stream from, int64_t sample, const int64_t *places, int64_t head, int length, int depth, int width,
                 float *rows) {
    const uint16_t *start = from.data + sample * from.sample + head * depth;
    for (int t = 0; t < length; t++) {
        const uint16_t *token = start + (places ? places[t] : t) * from.token;
        for (int d = 0; d < depth; d++) rows[t * width + d] = widen(token[d]);
        for (int d = depth; d < width; d++) rows[t * width + d] = 0;
    }
}

static int same(stream a, stream b) { return a.data == b.data && a.sample == b.sample && a.token == b.token; }

/* Vectors as rows of pairs along the width; what is behind `length` and `depth` is 0. */
static void load_pairs(stream from, int64_t sample, const int64_t *places, int64_t head, int length, int depth, int padded,
                       uint32_t *rows) {
    int pairs = pairs_of(depth);
    const uint16_t *start = from.data + sample * from.sample + head * depth;
    for (int t = 0; t < length; t++, rows += pairs) {
        rows[pairs - 1] = 0;
        memcpy(rows, start + (places ? places[t] : t) * from.token, 2 * (size_t)depth);
    }
    memset(rows, 0, 4 * (size_t)pairs * (padded - length));
}

/* Left vectors as rows of pairs, right ones as columns. */
static void load_columns(stream left, stream right, int64_t sample, const int64_t *places, int64_t head, int length,
                         int depth, uint32_t *rows, uint32_t *columns) {
    int padded = whole(length), pairs = pairs_of(depth);
    load_pairs(right, sample, places, head, length, depth, padded, rows);
    turn(rows, pairs, padded, columns);
    if (!same(left, right)) load_pairs(left, sample, places, head, length, depth, padded, rows);
}

/* Multiplies a product that is kept as m * 2^n, with m from 1 to below 2, by a positive number. */
static void multiply_in(double *product, double by) {
    double value = product[0] * by;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    product[1] += (double)((int64_t)(bits >> 52 & 0x7ff) - 1023);
    bits = (bits & ~((uint64_t)0x7ff << 52)) | (uint64_t)1023 << 52;
    if (value == value) memcpy(&value, &bits, sizeof bits);
    product[0] = value;
}

/* Adds to the sums of a head, and turns the teacher's logits into the gradient of the student's. Rows go through each
 * step a few at a time, so that no step waits for the sums of one row. */
static void compare(int rows, int length, int padded, float own_scale, float other_scale, float *student, float *teacher,
                    double *sums) {
    integers filled;
    lanes tail;
    for (int t = 0; t < LANES; t++) filled[t] = -(t < length - padded + LANES), tail[t] = -(float)filled[t];
    for (int first = 0; first < rows; first += ROWS) {
        int some = rows - first < ROWS ? rows - first : ROWS, last = padded - LANES;
        float *own = student + (int64_t)first * padded, *other = teacher + (int64_t)first * padded;
        float own_tops[ROWS], other_tops[ROWS];
        lanes own_sums[ROWS], other_sums[ROWS], weighted[ROWS];
        for (int r = 0; r < some; r++) {
            float *x = own + r * padded, *y = other + r * padded;
            /* Padding gets a logit of the row, since its own may lie far above all of them. */
            lanes top = chosen(filled, *(lanes *)(x + last), (lanes){0} + x[last]);
            lanes other_top = chosen(filled, *(lanes *)(y + last), (lanes){0} + y[last]);
            *(lanes *)(x + last) = top;
            *(lanes *)(y + last) = other_top;
            for (int t = 0; t < last; t += LANES) {
                top = greater(top, *(lanes *)(x + t));
                other_top = greater(other_top, *(lanes *)(y + t));
            }
            own_tops[r] = largest(top), other_tops[r] = largest(other_top);
        }
        for (int r = 0; r < some; r++) {
            float *x = own + r * padded, *y = other + r * padded;
            lanes own_sum = {0}, other_sum = {0}, sum = {0};
            for (int t = 0; t < padded; t += LANES) {
                lanes s = (*(lanes *)(x + t) - own_tops[r]) * own_scale;
                lanes o = (*(lanes *)(y + t) - other_tops[r]) * other_scale;
                lanes own_exp = exponential(s), other_exp = exponential(o);
                if (t == last) own_exp *= tail, other_exp *= tail;
                own_sum += own_exp;
                other_sum += other_exp;
                sum += other_exp * (o - s);
                *(lanes *)(x + t) = own_exp;
                *(lanes *)(y + t) = other_exp;
            }
            own_sums[r] = own_sum, other_sums[r] = other_sum, weighted[r] = sum;
        }
        for (int r = 0; r < some; r++) {
            float *x = own + r * padded, *y = other + r * padded;
            float own_total = total(own_sums[r]), other_total = total(other_sums[r]);
            float own_share = 1 / own_total, other_share = 1 / other_total;
            sums[0] += total(weighted[r]) * other_share;
            multiply_in(sums + 1, (double)own_total / other_total);  /* 1 where both are one */
            for (int t = 0; t < padded; t += LANES)
                *(lanes *)(y + t) = *(lanes *)(x + t) * own_share - *(lanes *)(y + t) * other_share;
        }
    }
}

/* Heads of samples, `first` to before `last`: head h of sample s is s * heads + h. Scratch: of the longest sample five
 * operands of the student's and one of the teacher's, and two blocks. */
void relate(const relation *of, int64_t first, int64_t last, float *scratch) {
    int own = (int)of->own, other = (int)of->other, own_width = whole(own), other_width = whole(other);
    float own_scale = of->own_scale, other_scale = of->other_scale;
    int wants_a = of->of_a != 0, wants_b = of->of_b != 0;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t sample = of->samples[unit / of->heads * 2], head = unit % of->heads;
        int length = (int)of->samples[unit / of->heads * 2 + 1], padded = whole(length);
        const int64_t *places = of->places ? of->places + sample * of->tokens : 0;
        int step = rows_at_once(of->block, length), own_pairs = pairs_of(own), other_pairs = pairs_of(other);
        int64_t own_size = (int64_t)padded * own_width, other_size = (int64_t)padded * other_width;
        float *left = scratch, *right = same(of->student_a, of->student_b) ? left : left + own_size;
        float *of_left = left + 2 * own_size, *of_right = of_left + own_size;
        uint32_t *rows_of_own = (uint32_t *)(of_right + own_size), *columns = rows_of_own + own_size / 2;
        uint32_t *rows_of_other = columns + own_size / 2, *other_columns = rows_of_other + other_size / 2;
        float *own_logits = (float *)(other_columns + other_size / 2), *logits = own_logits + of->block;
        load(of->student_a, sample, places, head, length, own, own_width, left);
        if (left != right) load(of->student_b, sample, places, head, length, own, own_width, right);
        load_columns(of->student_a, of->student_b, sample, places, head, length, own, rows_of_own, columns);
        load_columns(of->teacher_a, of->teacher_b, sample, places, head, length, other, rows_of_other, other_columns);
        double *sums = of->sums + 3 * unit;
        sums[0] = 0, sums[1] = 1, sums[2] = 0;
        for (int top = 0; top < length; top += step) {
            int rows = length - top < step ? length - top : step;
            multiply_pairs(rows, padded, own_pairs, rows_of_own + top * own_pairs, own_pairs, 1, columns, padded, own_logits,
                           padded, 0);
            multiply_pairs(rows, padded, other_pairs, rows_of_other + top * other_pairs, other_pairs, 1, other_columns,
                           padded, logits, padded, 0);
            compare(rows, length, padded, own_scale, other_scale, own_logits, logits, sums);
            if (wants_a)
                multiply(rows, own_width, length, logits, padded, 1, right, own_width, of_left + top * own_width,
                         own_width, 0);
            if (wants_b)
                multiply(own, padded, rows, left + top * own_width, 1, own_width, logits, padded, of_right, padded,
                         top > 0);
        }
        for (int t = 0; t < length; t++) {
            int64_t place = (sample * of->tokens + (places ? places[t] : t)) * of->heads * own + head * own;
            for (int d = 0; d < own; d++) {
                float a = wants_a ? own_scale * of_left[t * own_width + d] : 0;
                float b = wants_b ? own_scale * of_right[d * padded + t] : 0;
                if (of->of_a == of->of_b && wants_a) of->of_a[place + d] = a + b;
                else if (wants_a) of->of_a[place + d] = a;
                if (of->of_a != of->of_b && wants_b) of->of_b[place + d] = b;
            }
        }
    }
}
