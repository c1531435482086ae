/* Divergence of token relations and its gradient, of vectors in bfloat16, computed in float32: see relation.py.
 *
 * One head of one sample, a unit, at a time, in memory that stays in a core's cache: both models' logits of some rows, one
 * pass for the exponentials and the sums of a row, one for its gradient. Logits are of pairs, see pairs.h, whose products
 * are exact; the gradient is multiplied in float32.
 *
 * Letters as in relation_blocked.py: e = exp(logits - their maximum), s = the sum of e in a row, for student and teacher;
 * D = teacher's logits - student's logits. Sizes: `length` is the sample's tokens, `depth` a head's numbers; `padded` and
 * `width` are the two rounded up to whole vectors.
 */
#include "pairs.h"
#include "team.h"

#define ROWS 8 /* that go through a step together */

typedef struct {
    /* [samples, tokens, heads * depth], bfloat16; strides of samples and tokens in elements, the last axis is dense. */
    const uint16_t *data;
    int64_t sample, token;
} stream;

typedef struct {
    stream student_a, student_b, teacher_a, teacher_b;
    float *grad_a, *grad_b;   /* [samples, tokens, heads * depth], dense; one where a is b, 0 where none is wanted */
    const int64_t *samples;   /* index and length of each */
    const int64_t *places;    /* valid tokens of each, [samples, tokens]; 0: they are the first */
    double *sums;             /* of each unit: sum of p_T D, and the product of s_S / s_T as m * 2^n */
    int64_t tokens, heads, student_depth, teacher_depth;
    float student_scale, teacher_scale; /* factors of their logits */
    int64_t block;            /* logits in work; at least a row of the longest sample */
} relation;

/* The memory of one unit, cut from a thread's scratch. */
typedef struct {
    float *left, *right;                                  /* student's vectors, [padded, width]; one where a is b */
    float *grad_left, *grad_right;                        /* [padded, width], and turned, [width, padded] */
    uint32_t *student_rows, *student_columns;             /* student's vectors as pairs, and turned */
    uint32_t *teacher_rows, *teacher_columns;
    float *student_logits, *teacher_logits;               /* a block each */
} workspace;

/* Tokens of a head's sample: where they are. */
typedef struct {
    int64_t sample, head;
    const int64_t *places; /* of the sample's valid tokens; 0: they are the first */
    int length;
} unit;

static int64_t place_of(unit of, int t) { return of.places ? of.places[t] : t; }

/* Vectors of a unit in float32, [length, width]; what is behind `depth` is 0. */
static void load(stream from, unit of, int depth, int width, float *rows) {
    const uint16_t *start = from.data + of.sample * from.sample + of.head * depth;
    for (int t = 0; t < of.length; t++) {
        const uint16_t *token = start + place_of(of, t) * from.token;
        for (int d = 0; d < depth; d++) rows[t * width + d] = widen(token[d]);
        for (int d = depth; d < width; d++) rows[t * width + d] = 0;
    }
}

/* Whether two streams are one. */
static int same(stream a, stream b) { return a.data == b.data && a.sample == b.sample && a.token == b.token; }

/* Vectors of a unit as rows of pairs along the depth, `padded` of them; what is behind `length` and `depth` is 0. */
static void load_pairs(stream from, unit of, int depth, int padded, uint32_t *rows) {
    int pairs = pairs_of(depth);
    const uint16_t *start = from.data + of.sample * from.sample + of.head * depth;
    for (int t = 0; t < of.length; t++, rows += pairs) {
        rows[pairs - 1] = 0;
        memcpy(rows, start + place_of(of, t) * from.token, 2 * (size_t)depth);
    }
    memset(rows, 0, 4 * (size_t)pairs * (padded - of.length));
}

/* Left vectors as rows of pairs, right ones turned, as columns. */
static void load_operands(stream left, stream right, unit of, int depth, uint32_t *rows, uint32_t *columns) {
    int padded = whole(of.length), pairs = pairs_of(depth);
    load_pairs(right, of, depth, padded, rows);
    turn(rows, pairs, padded, columns);
    if (!same(left, right)) load_pairs(left, of, depth, padded, rows);
}

/* Multiplies a product that is kept as m * 2^n, with m from 1 to below 2, by a positive number: many factors would leave
 * the range of a double. */
static void multiply_in(double *product, double factor) {
    double value = product[0] * factor;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* The 11 bits of the exponent, less its bias, go to n; the exponent that is left is 0. */
    product[1] += (double)((int64_t)(bits >> 52 & 0x7ff) - 1023);
    bits = (bits & ~((uint64_t)0x7ff << 52)) | (uint64_t)1023 << 52;
    if (value == value) memcpy(&value, &bits, sizeof bits); /* a NaN stays one */
    product[0] = value;
}

/* Adds rows to the sums of a unit, and turns the teacher's logits into the gradient of the student's, e_S / s_S - e_T / s_T.
 * Rows go through each step a few at a time, so that no step waits for the sums of one row. */
static void compare(int rows, int length, int padded, float student_scale, float teacher_scale, float *student_logits,
                    float *teacher_logits, double *sums) {
    /* The last vector of a row: which of its numbers are of tokens, as a mask and as factors. */
    integers filled;
    lanes tail;
    for (int t = 0; t < LANES; t++) filled[t] = -(t < length - padded + LANES), tail[t] = -(float)filled[t];
    int last = padded - LANES;
    for (int first = 0; first < rows; first += ROWS) {
        int some = rows - first < ROWS ? rows - first : ROWS;
        float *student = student_logits + (int64_t)first * padded, *teacher = teacher_logits + (int64_t)first * padded;
        float student_tops[ROWS], teacher_tops[ROWS];
        lanes student_sums[ROWS], teacher_sums[ROWS], weighted[ROWS];

        /* The maximum of each row. */
        for (int r = 0; r < some; r++) {
            float *x = student + r * padded, *y = teacher + r * padded;
            /* Padding gets a logit of the row, since its own may lie far above all of them. */
            lanes student_top = chosen(filled, *(lanes *)(x + last), (lanes){0} + x[last]);
            lanes teacher_top = chosen(filled, *(lanes *)(y + last), (lanes){0} + y[last]);
            *(lanes *)(x + last) = student_top;
            *(lanes *)(y + last) = teacher_top;
            for (int t = 0; t < last; t += LANES) {
                student_top = greater(student_top, *(lanes *)(x + t));
                teacher_top = greater(teacher_top, *(lanes *)(y + t));
            }
            student_tops[r] = largest(student_top), teacher_tops[r] = largest(teacher_top);
        }

        /* e in place of logits, the sums of e, and the sum of e_T D. */
        for (int r = 0; r < some; r++) {
            float *x = student + r * padded, *y = teacher + r * padded;
            lanes student_sum = {0}, teacher_sum = {0}, sum = {0};
            for (int t = 0; t < padded; t += LANES) {
                lanes s = (*(lanes *)(x + t) - student_tops[r]) * student_scale;
                lanes o = (*(lanes *)(y + t) - teacher_tops[r]) * teacher_scale;
                lanes student_exp = exponential(s), teacher_exp = exponential(o);
                if (t == last) student_exp *= tail, teacher_exp *= tail;
                student_sum += student_exp;
                teacher_sum += teacher_exp;
                sum += teacher_exp * (o - s);
                *(lanes *)(x + t) = student_exp;
                *(lanes *)(y + t) = teacher_exp;
            }
            student_sums[r] = student_sum, teacher_sums[r] = teacher_sum, weighted[r] = sum;
        }

        /* The sums of the unit, and the gradient in place of the teacher's e. */
        for (int r = 0; r < some; r++) {
            float *x = student + r * padded, *y = teacher + r * padded;
            float student_total = total(student_sums[r]), teacher_total = total(teacher_sums[r]);
            float student_share = 1 / student_total, teacher_share = 1 / teacher_total;
            sums[0] += total(weighted[r]) * teacher_share;
            multiply_in(sums + 1, (double)student_total / teacher_total);  /* 1 where both are one */
            for (int t = 0; t < padded; t += LANES)
                *(lanes *)(y + t) = *(lanes *)(x + t) * student_share - *(lanes *)(y + t) * teacher_share;
        }
    }
}

/* Cuts a thread's scratch for a unit: of the student five operands in float32's size, of the teacher one, two blocks. */
static workspace cut_scratch(const relation *of, int padded, float *scratch) {
    int64_t student_size = (int64_t)padded * whole((int)of->student_depth);
    int64_t teacher_size = (int64_t)padded * whole((int)of->teacher_depth);
    workspace work;
    work.left = scratch;
    work.right = same(of->student_a, of->student_b) ? work.left : work.left + student_size;
    work.grad_left = work.left + 2 * student_size;
    work.grad_right = work.grad_left + student_size;
    /* An operand of pairs has half the size of one in float32. */
    work.student_rows = (uint32_t *)(work.grad_right + student_size);
    work.student_columns = work.student_rows + student_size / 2;
    work.teacher_rows = work.student_columns + student_size / 2;
    work.teacher_columns = work.teacher_rows + teacher_size / 2;
    work.student_logits = (float *)(work.teacher_columns + teacher_size / 2);
    work.teacher_logits = work.student_logits + of->block;
    return work;
}

/* Writes the gradients of a unit to those of the streams; one that is of both receives their sum. */
static void write_gradients(const relation *of, unit one, workspace work, int padded, int width) {
    int depth = (int)of->student_depth, wants_a = of->grad_a != 0, wants_b = of->grad_b != 0;
    int is_one = of->grad_a == of->grad_b;
    float scale = of->student_scale;
    for (int t = 0; t < one.length; t++) {
        int64_t place = (one.sample * of->tokens + place_of(one, t)) * of->heads * depth + one.head * depth;
        for (int d = 0; d < depth; d++) {
            float a = wants_a ? scale * work.grad_left[t * width + d] : 0;
            float b = wants_b ? scale * work.grad_right[d * padded + t] : 0;
            if (is_one && wants_a) of->grad_a[place + d] = a + b;
            else if (wants_a) of->grad_a[place + d] = a;
            if (!is_one && wants_b) of->grad_b[place + d] = b;
        }
    }
}

/* Units `first` to before `last`: head h of sample s is s * heads + h. Scratch: see `cut_scratch`, for the longest
 * sample. */
void relate(const relation *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->student_depth, teacher_depth = (int)of->teacher_depth, width = whole(depth);
    int pairs = pairs_of(depth), teacher_pairs = pairs_of(teacher_depth);
    for (int64_t number = first; number < last; number++) {
        const int64_t *sample_and_length = of->samples + number / of->heads * 2;
        unit one = {sample_and_length[0], number % of->heads, 0, (int)sample_and_length[1]};
        if (of->places) one.places = of->places + one.sample * of->tokens;
        int length = one.length, padded = whole(length), step = rows_at_once(of->block, length);
        workspace work = cut_scratch(of, padded, scratch);
        load(of->student_a, one, depth, width, work.left);
        if (work.left != work.right) load(of->student_b, one, depth, width, work.right);
        load_operands(of->student_a, of->student_b, one, depth, work.student_rows, work.student_columns);
        load_operands(of->teacher_a, of->teacher_b, one, teacher_depth, work.teacher_rows, work.teacher_columns);

        double *sums = of->sums + 3 * number;
        sums[0] = 0, sums[1] = 1, sums[2] = 0;
        for (int top = 0; top < length; top += step) {
            int rows = length - top < step ? length - top : step;
            /* Logits of the rows, [rows, padded]. */
            multiply_pairs(rows, padded, pairs, work.student_rows + top * pairs, pairs, 1, work.student_columns, padded,
                           work.student_logits, padded, 0);
            multiply_pairs(rows, padded, teacher_pairs, work.teacher_rows + top * teacher_pairs, teacher_pairs, 1,
                           work.teacher_columns, padded, work.teacher_logits, padded, 0);
            compare(rows, length, padded, of->student_scale, of->teacher_scale, work.student_logits, work.teacher_logits,
                    sums);
            /* G, [rows, padded], now in place of the teacher's logits: G b for the rows, and G^T a added for all. */
            float *gradient = work.teacher_logits;
            if (of->grad_a)
                multiply(rows, width, length, gradient, padded, 1, work.right, width, work.grad_left + top * width,
                         width, 0);
            if (of->grad_b)
                multiply(depth, padded, rows, work.left + top * width, 1, width, gradient, padded, work.grad_right,
                         padded, top > 0);
        }
        write_gradients(of, one, work, padded, width);
    }
}
