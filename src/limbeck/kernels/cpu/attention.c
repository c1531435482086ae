/* Attention of some samples of a packed row in bfloat16, summed in float32: see attention.py.
 *
 * One head of one sample, a unit, at a time, in memory that stays in a core's cache. Every product is of pairs of bfloat16,
 * see pairs.h: operands as they are, probabilities and their gradients rounded to it.
 *
 * Letters as in packed_attention.py: Q, K, V; P, the probabilities; O, the context; G and D; dX, the gradient of X. Sizes: `length`
 * is the sample's tokens, `depth` a head's numbers; `padded` and `width` are the two rounded up to whole vectors.
 */
#include "pairs.h"
#include "team.h"

#define ROWS 8  /* that go through a step together */
#define LINE 32 /* numbers of a line of the cache */

typedef struct {
    /* [tokens, heads, depth], bfloat16; strides of tokens and heads in elements, depth is dense. */
    const uint16_t *data;
    int64_t token, head;
} operand;

typedef struct {
    operand query, key, value, upstream;
    uint16_t *context;                             /* O, [tokens, heads, depth], dense */
    uint16_t *query_grad, *key_grad, *value_grad;  /* likewise */
    const int64_t *samples;                        /* first token and length of each */
    int64_t heads, depth;
    int64_t block;      /* scores in work; at least a row of the longest sample */
    float scale;
    uint32_t dropped;   /* probability of dropout in steps of 2^-16; 0: none */
    uint32_t seed;
} attention;

/* A unit: its head, and its sample's tokens in the row. */
typedef struct {
    int64_t head, start;
    int length;
} unit;

static unit unit_of(const attention *of, int64_t number) {
    const int64_t *start_and_length = of->samples + number / of->heads * 2;
    unit one = {number % of->heads, start_and_length[0], (int)start_and_length[1]};
    return one;
}

/* Operands of one unit, as pairs; what is behind `length` and `depth` is 0. */

/* A head of a token; that of the next head is asked for, since no processor foresees it. */
static const uint16_t *head_of(operand from, int64_t token, int64_t head, int depth) {
    const uint16_t *numbers = from.data + token * from.token + head * from.head;
    for (int d = 0; d < depth; d += LINE) __builtin_prefetch(numbers + from.head + d);
    return numbers;
}

/* Rows of pairs along depth, `padded` of them. */
static void load(operand from, unit of, int depth, int padded, uint32_t *rows) {
    int pairs = pairs_of(depth), whole_depth = depth / LANES * LANES;
    for (int t = 0; t < of.length; t++, rows += pairs) {
        const uint16_t *numbers = head_of(from, of.start + t, of.head, depth);
        uint16_t *to = (uint16_t *)rows;
        rows[pairs - 1] = 0;
        for (int d = 0; d < whole_depth; d += LANES) *(halves *)(to + d) = *(const halves *)(numbers + d);
        if (whole_depth < depth) memcpy(to + whole_depth, numbers + whole_depth, 2 * (depth - whole_depth));
    }
    memset(rows, 0, 4 * (int64_t)pairs * (padded - of.length));
}

/* Rows of pairs along depth, turned: a row for each pair, `padded` long. `rows` is memory to do it in. */
static void load_turned(operand from, unit of, int depth, int padded, uint32_t *rows, uint32_t *turned) {
    load(from, of, depth, padded, rows);
    turn(rows, pairs_of(depth), padded, turned);
}

/* Rows of pairs along tokens, `width` long. */
static void weave(operand from, unit of, int depth, int width, uint32_t *out) {
    for (int t = 0; t < of.length; t += 2, out += width) {
        int is_last = t + 1 == of.length; /* without a second token */
        const uint16_t *low = head_of(from, of.start + t, of.head, depth);
        const uint16_t *high = is_last ? low : head_of(from, of.start + t + 1, of.head, depth);
        for (int d = 0; d < depth; d++) out[d] = low[d] | (is_last ? 0 : (uint32_t)high[d] << 16);
        for (int d = depth; d < width; d++) out[d] = 0;
    }
}

/* Writes rows [length, width] times a factor, and times one of each row where there are such, to a head of the unit's
 * tokens in bfloat16. `to` is the head of the first token, `token` the stride of tokens. */
static void store(const float *rows, int length, int depth, int width, float factor, const float *factors, uint16_t *to,
                  int64_t token) {
    for (int t = 0; t < length; t++) {
        float by = factors ? factor * factors[t] : factor;
        const float *row = rows + t * width;
        uint16_t *out = to + t * token;
        int d = 0;
        for (; d + LANES <= depth; d += LANES) *(halves *)(out + d) = halved(by * *(const lanes *)(row + d));
        for (; d < depth; d++) out[d] = narrow(by * row[d]);
    }
}

/* Rows of scores to the numerators of their probabilities, 0 behind `length`, and one over the sum of each. A few rows go
 * through each step together, so that no step waits for the sums of one. */
static void exponentials(int rows, int length, int padded, float scale, float *scores, float *shares) {
    /* Which numbers of the last vector of a row are of tokens. */
    int last = padded - LANES;
    integers filled;
    for (int t = 0; t < LANES; t++) filled[t] = -(last + t < length);
    for (int first = 0; first < rows; first += ROWS, scores += ROWS * padded, shares += ROWS) {
        int some = rows - first < ROWS ? rows - first : ROWS;
        float tops[ROWS];
        lanes sums[ROWS];
        /* The maximum of each row; padding gets a score of the row, since its own may lie far above all of them. */
        for (int r = 0; r < some; r++) {
            float *row = scores + r * padded;
            lanes top = chosen(filled, *(lanes *)(row + last), (lanes){0} + row[last]);
            *(lanes *)(row + last) = top;
            for (int t = 0; t < last; t += LANES) top = greater(top, *(lanes *)(row + t));
            tops[r] = largest(top);
        }
        /* Exponentials in place of scores, and their sums. */
        for (int r = 0; r < some; r++) {
            float *row = scores + r * padded;
            sums[r] = (lanes){0};
            for (int t = 0; t < padded; t += LANES) {
                lanes numerator = exponential((*(lanes *)(row + t) - tops[r]) * scale);
                if (t == last) numerator = chosen(filled, numerator, (lanes){0});
                *(lanes *)(row + t) = numerator;
                sums[r] += numerator;
            }
        }
        for (int r = 0; r < some; r++) shares[r] = 1 / total(sums[r]);
    }
}

/* Keep factors, 0 or 1, of a vector of probabilities: bits of a hash of their place, the same whenever they are asked. */
static inline lanes keep_factors(const attention *of, uint32_t stream, uint32_t place) {
    static const words steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    words bits = (steps + place) ^ stream;
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
    bits = (bits ^ (bits >> 16)) + of->seed;
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
    return chosen((integers)((bits >> 16) >= of->dropped), (lanes){0} + 1.0f, (lanes){0});
}

static uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* The stream of a unit's keep factors. */
static uint32_t stream_of(const attention *of, unit one) {
    return mixed((uint32_t)(one.start * of->heads + one.head) + 0x9e3779b9u);
}

/* One over the probability that dropout keeps a probability. */
static float keep_scale_of(const attention *of) { return 65536.0f / (65536.0f - of->dropped); }

/* Units `first` to before `last`: head h of sample s is s * heads + h. Scratch: 3 operands of the longest sample in
 * float32's size, its tokens, and two blocks. */
void attend(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth), pairs = pairs_of(depth);
    for (int64_t number = first; number < last; number++) {
        unit one = unit_of(of, number);
        int length = one.length, padded = whole(length), step = rows_at_once(of->block, length);
        /* An operand of pairs has half the size of one in float32. */
        int64_t size = (int64_t)padded * width, half = size / 2;
        uint32_t *query = (uint32_t *)scratch, *key = query + half, *turned_key = key + half;
        uint32_t *value = turned_key + half;
        float *context = (float *)(value + half), *shares = context + size, *scores = shares + padded;
        uint16_t *probabilities = (uint16_t *)(scores + of->block); /* up to the shares */
        uint32_t stream = stream_of(of, one);
        load(of->query, one, depth, padded, query);
        load_turned(of->key, one, depth, padded, key, turned_key);
        weave(of->value, one, depth, width, value);
        for (int top = 0; top < length; top += step) {
            int rows = length - top < step ? length - top : step;
            /* S, then P up to the shares, [rows, padded]. */
            multiply_pairs(rows, padded, pairs, query + top * pairs, pairs, 1, turned_key, padded, scores, padded, 0);
            exponentials(rows, length, padded, of->scale, scores, shares + top);
            for (int r = 0; r < rows; r++) {
                for (int t = 0; t < padded; t += LANES) {
                    lanes probability = *(lanes *)(scores + (int64_t)r * padded + t);
                    if (of->dropped) probability *= keep_factors(of, stream, (uint32_t)((top + r) * padded + t));
                    *(halves *)(probabilities + (int64_t)r * padded + t) = halved(probability);
                }
            }
            /* O = P V. */
            multiply_pairs(rows, width, pairs_of(length), (uint32_t *)probabilities, padded / 2, 1, value, width,
                           context + top * width, width, 0);
        }
        store(context, length, depth, width, keep_scale_of(of), shares,
              of->context + (one.start * of->heads + one.head) * depth, of->heads * depth);
    }
}

/* Turns a row of numerators of P into P, where dropout sets them to 0 into -P, and one of dO V^T into G; D is returned, the
 * sum of P o G. `place`: that of the row's first number in the unit. */
static float weigh_row(const attention *of, uint32_t stream, uint32_t place, float share, int padded, float *scores,
                       float *gradient) {
    float keep_scale = keep_scale_of(of);
    lanes sum = {0};
    for (int t = 0; t < padded; t += LANES) {
        lanes probability = *(lanes *)(scores + t) * share, context_grad = *(lanes *)(gradient + t), sign = {0};
        sign += 1.0f;
        if (of->dropped) {
            lanes keep = keep_factors(of, stream, place + t);
            context_grad *= keep_scale * keep;
            sign = 2.0f * keep - 1.0f;
        }
        sum += probability * context_grad;
        *(lanes *)(scores + t) = probability * sign;
        *(lanes *)(gradient + t) = context_grad;
    }
    return total(sum);
}

/* Likewise. Scratch: 8 operands of the longest sample, its tokens, and three blocks. */
void differentiate(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth), pairs = pairs_of(depth);
    float keep_scale = keep_scale_of(of);
    for (int64_t number = first; number < last; number++) {
        unit one = unit_of(of, number);
        int length = one.length, padded = whole(length), step = rows_at_once(of->block, length);

        /* The unit's memory: operands as pairs, gradients, the shares of rows, and three blocks. */
        int64_t size = (int64_t)padded * width, half = size / 2;
        uint32_t *query = (uint32_t *)scratch, *upstream = query + half;
        uint32_t *rows = upstream + half, *turned_key = rows + half, *turned_value = turned_key + half;
        uint32_t *woven_query = turned_value + half, *woven_key = woven_query + half, *woven_upstream = woven_key + half;
        float *query_grad = (float *)(woven_upstream + half), *key_grad = query_grad + size, *value_grad = key_grad + size;
        float *shares = value_grad + size, *scores = shares + padded, *gradient = scores + of->block;
        /* dS as pairs along its rows, for dQ; it and P as pairs of two rows, for dK and dV, in place of what they are made
         * of. */
        uint16_t *score_grads = (uint16_t *)(gradient + of->block);
        uint32_t *paired_probabilities = (uint32_t *)scores, *paired_grads = (uint32_t *)gradient;

        load_turned(of->key, one, depth, padded, rows, turned_key);
        load_turned(of->value, one, depth, padded, rows, turned_value);
        load(of->query, one, depth, padded, query);
        load(of->upstream, one, depth, padded, upstream);
        weave(of->query, one, depth, width, woven_query);
        weave(of->key, one, depth, width, woven_key);
        weave(of->upstream, one, depth, width, woven_upstream);

        uint32_t stream = stream_of(of, one);
        for (int top = 0; top < length; top += step) {
            int count = length - top < step ? length - top : step, twos = pairs_of(count);
            uint32_t *queries = query + top * pairs, *upstreams = upstream + top * pairs;
            /* S, then P up to the shares, and dO V^T, [count, padded]. */
            multiply_pairs(count, padded, pairs, queries, pairs, 1, turned_key, padded, scores, padded, 0);
            multiply_pairs(count, padded, pairs, upstreams, pairs, 1, turned_value, padded, gradient, padded, 0);
            exponentials(count, length, padded, of->scale, scores, shares);
            /* dS = P o (G - D) and P o M, two rows at a time; a row behind the last is 0. */
            for (int r = 0; r < 2 * twos; r += 2) {
                float row_sum[2] = {0, 0}; /* D */
                for (int second = 0; second < 2 && r + second < count; second++) {
                    int row = (r + second) * padded;
                    row_sum[second] = weigh_row(of, stream, (uint32_t)(top * padded + row), shares[r + second], padded,
                                                scores + row, gradient + row);
                }
                for (int t = 0; t < padded; t += LANES) {
                    lanes kept[2], score_grad[2];
                    for (int second = 0; second < 2; second++) {
                        int at = (r + second) * padded + t;
                        /* The sign says whether dropout keeps a probability. */
                        lanes probability = *(lanes *)(scores + at), zero = {0};
                        kept[second] = keep_scale * greater(probability, zero);
                        probability = greater(probability, -probability);
                        score_grad[second] = probability * (*(lanes *)(gradient + at) - row_sum[second]);
                        if (r + second >= count) kept[second] = score_grad[second] = zero;
                        *(halves *)(score_grads + at) = halved(score_grad[second]);
                    }
                    /* In place of the first of the two rows that they were made of. */
                    *(words *)(paired_probabilities + r * padded + t) = paired(kept[0], kept[1]);
                    *(words *)(paired_grads + r * padded + t) = paired(score_grad[0], score_grad[1]);
                }
            }
            /* dV = (P o M)^T dO and dK = dS^T Q, both added up, and dQ = dS K. */
            multiply_pairs(length, width, twos, paired_probabilities, 1, 2 * padded, woven_upstream + top / 2 * width, width,
                           value_grad, width, top > 0);
            multiply_pairs(length, width, twos, paired_grads, 1, 2 * padded, woven_query + top / 2 * width, width,
                           key_grad, width, top > 0);
            multiply_pairs(count, width, pairs_of(length), (uint32_t *)score_grads, padded / 2, 1, woven_key, width,
                           query_grad + top * width, width, 0);
        }
        int64_t place = (one.start * of->heads + one.head) * depth, token = of->heads * depth;
        store(query_grad, length, depth, width, of->scale, 0, of->query_grad + place, token);
        store(key_grad, length, depth, width, of->scale, 0, of->key_grad + place, token);
        store(value_grad, length, depth, width, 1, 0, of->value_grad + place, token);
    }
}

/* Whether products take the processor's instructions for bfloat16. */
int multiplies_pairs(void) {
#if defined(__AVX512BF16__)
    return 1;
#else
    return 0;
#endif
}
