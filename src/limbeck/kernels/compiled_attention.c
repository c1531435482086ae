/* Attention of some samples of a packed row in bfloat16, computed in float32: see compiled_attention.py.
 *
 * One head of one sample at a time, in memory that stays in a core's cache: its operands are widened to float32 rows of
 * whole vectors, and every product is the same loop over tiles of four rows by two vectors.
 */
#include "vectors.h"

typedef struct {
    /* [tokens, heads, depth], bfloat16; strides of tokens and heads in elements, depth is dense. */
    const uint16_t *data;
    int64_t token, head;
} operand;

typedef struct {
    operand query, key, value, upstream;
    uint16_t *context;                       /* [tokens, heads, depth], dense */
    uint16_t *of_query, *of_key, *of_value;  /* gradients, likewise */
    const int64_t *samples;                  /* first token and length of each */
    int64_t heads, depth;
    int64_t block;      /* scores in work; at least a row of the longest sample */
    float scale;
    uint32_t dropped;   /* probability of dropout in steps of 2^-16; 0: none */
    uint32_t seed;
} attention;

/* Operands of one head: rows of `width` floats, 0 behind depth. */

static void load(operand from, int64_t token, int64_t head, int length, int depth, int width, float *rows) {
    for (int t = 0; t < length; t++) {
        const uint16_t *own = from.data + (token + t) * from.token + head * from.head;
        for (int d = 0; d < depth; d++) rows[t * width + d] = widen(own[d]);
        for (int d = depth; d < width; d++) rows[t * width + d] = 0;
    }
}

static void store(const float *rows, int length, int depth, int width, float factor, uint16_t *to, int64_t token) {
    for (int t = 0; t < length; t++)
        for (int d = 0; d < depth; d++) to[t * token + d] = narrow(factor * rows[t * width + d]);
}

/* Rows of scores to probabilities, 0 behind `length`. */
static void softmax(int rows, int length, int padded, float scale, float *scores) {
    for (int r = 0; r < rows; r++) {
        float *row = scores + (int64_t)r * padded;
        for (int t = length; t < padded; t++) row[t] = row[0];
        lanes top = *(lanes *)row, sum = {0};
        for (int t = LANES; t < padded; t += LANES) top = greater(top, *(lanes *)(row + t));
        float highest = largest(top);
        for (int t = length; t < padded; t++) row[t] = -3e38f;
        for (int t = 0; t < padded; t += LANES) {
            lanes found = exponential((*(lanes *)(row + t) - highest) * scale);
            *(lanes *)(row + t) = found;
            sum += found;
        }
        float share = 1 / total(sum);
        for (int t = 0; t < padded; t += LANES) *(lanes *)(row + t) *= share;
        for (int t = length; t < padded; t++) row[t] = 0;
    }
}

/* Keep factors, 0 or 1, of a vector of probabilities: bits of a hash of their place, the same whenever they are asked. */
static inline lanes kept(const attention *of, uint32_t stream, uint32_t place) {
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

static uint32_t stream_of(const attention *of, int64_t start, int64_t head) {
    return mixed((uint32_t)(start * of->heads + head) + 0x9e3779b9u);
}

static int rows_at_once(const attention *of, int length) {
    int64_t rows = of->block / whole(length);
    return rows < length ? (int)rows : length;
}

/* Samples `first` to before `last`. Scratch: 5 operands of the longest sample, and a block. */
void attend(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth);
    float survivors = 65536.0f / (65536.0f - of->dropped);
    for (int64_t sample = first; sample < last; sample++) {
        int64_t start = of->samples[2 * sample];
        int length = (int)of->samples[2 * sample + 1], padded = whole(length), step = rows_at_once(of, length);
        int64_t size = (int64_t)padded * width;
        float *query = scratch, *key = query + size, *value = key + size, *turned = value + size, *found = turned + size;
        float *scores = found + size;
        for (int64_t head = 0; head < of->heads; head++) {
            uint32_t stream = stream_of(of, start, head);
            load(of->query, start, head, length, depth, width, query);
            load(of->key, start, head, length, depth, width, key);
            load(of->value, start, head, length, depth, width, value);
            transpose(key, length, depth, width, padded, turned);
            for (int top = 0; top < length; top += step) {
                int rows = length - top < step ? length - top : step;
                multiply(rows, padded, depth, query + top * width, width, 1, turned, padded, scores, padded, 0);
                softmax(rows, length, padded, of->scale, scores);
                if (of->dropped)
                    for (int at = 0; at < rows * padded; at += LANES)
                        *(lanes *)(scores + at) *= kept(of, stream, (uint32_t)(top * padded + at));
                multiply(rows, width, length, scores, padded, 1, value, width, found + top * width, width, 0);
            }
            store(found, length, depth, width, survivors, of->context + (start * of->heads + head) * depth,
                  of->heads * depth);
        }
    }
}

/* Likewise. Scratch: 10 operands of the longest sample, and two blocks. */
void differentiate(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth);
    float survivors = 65536.0f / (65536.0f - of->dropped);
    operand context = {of->context, of->heads * depth, depth};
    for (int64_t sample = first; sample < last; sample++) {
        int64_t start = of->samples[2 * sample];
        int length = (int)of->samples[2 * sample + 1], padded = whole(length), step = rows_at_once(of, length);
        int64_t size = (int64_t)padded * width;
        float *query = scratch, *key = query + size, *value = key + size, *wanted = value + size;
        float *found = wanted + size, *turned_key = found + size, *turned_value = turned_key + size;
        float *of_query = turned_value + size, *of_key = of_query + size, *of_value = of_key + size;
        float *scores = of_value + size, *gradient = scores + (int64_t)step * padded;
        for (int64_t head = 0; head < of->heads; head++) {
            uint32_t stream = stream_of(of, start, head);
            load(of->query, start, head, length, depth, width, query);
            load(of->key, start, head, length, depth, width, key);
            load(of->value, start, head, length, depth, width, value);
            load(of->upstream, start, head, length, depth, width, wanted);
            load(context, start, head, length, depth, width, found);
            transpose(key, length, depth, width, padded, turned_key);
            transpose(value, length, depth, width, padded, turned_value);
            for (int top = 0; top < length; top += step) {
                int rows = length - top < step ? length - top : step;
                float *own = query + top * width, *upstream = wanted + top * width;
                multiply(rows, padded, depth, own, width, 1, turned_key, padded, scores, padded, 0);
                softmax(rows, length, padded, of->scale, scores);
                multiply(rows, padded, depth, upstream, width, 1, turned_value, padded, gradient, padded, 0);
                for (int r = 0; r < rows; r++) {
                    lanes sum = {0};
                    for (int d = 0; d < width; d += LANES)
                        sum += *(lanes *)(found + (top + r) * width + d) * *(lanes *)(upstream + r * width + d);
                    float expected = total(sum);
                    for (int t = 0; t < padded; t += LANES) {
                        int at = r * padded + t;
                        lanes keep = of->dropped ? kept(of, stream, (uint32_t)(top * padded + at)) * survivors
                                                 : (lanes){0} + 1.0f;
                        lanes probability = *(lanes *)(scores + at);
                        *(lanes *)(gradient + at) = probability * (*(lanes *)(gradient + at) * keep - expected);
                        *(lanes *)(scores + at) = probability * keep;
                    }
                }
                multiply(length, width, rows, scores, 1, padded, upstream, width, of_value, width, top > 0);
                multiply(rows, width, length, gradient, padded, 1, key, width, of_query + top * width, width, 0);
                multiply(length, width, rows, gradient, 1, padded, own, width, of_key, width, top > 0);
            }
            int64_t place = (start * of->heads + head) * depth, token = of->heads * depth;
            store(of_query, length, depth, width, of->scale, of->of_query + place, token);
            store(of_key, length, depth, width, of->scale, of->of_key + place, token);
            store(of_value, length, depth, width, 1, of->of_value + place, token);
        }
    }
}
