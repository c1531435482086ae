/* Attention of some samples of a packed row in bfloat16, summed in float32: see attention.py.
 *
 * One head of one sample at a time, in memory that stays in a core's cache. Every product is of pairs of bfloat16, see
 * pairs.h: operands as they are, probabilities and their gradients rounded to it.
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
    uint16_t *context;                       /* [tokens, heads, depth], dense */
    uint16_t *of_query, *of_key, *of_value;  /* gradients, likewise */
    const int64_t *samples;                  /* first token and length of each */
    int64_t heads, depth;
    int64_t block;      /* scores in work; at least a row of the longest sample */
    float scale;
    uint32_t dropped;   /* probability of dropout in steps of 2^-16; 0: none */
    uint32_t seed;
} attention;

/* Operands of one head, as pairs; what is behind `length` and `depth` is 0. */

/* A head of a token; that of the next head is asked for, since no processor foresees it. */
static const uint16_t *head_of(operand from, int64_t token, int64_t head, int depth) {
    const uint16_t *found = from.data + token * from.token + head * from.head;
    for (int d = 0; d < depth; d += LINE) __builtin_prefetch(found + from.head + d);
    return found;
}

/* Rows of pairs along depth, `padded` of them. */
static void load(operand from, int64_t token, int64_t head, int length, int depth, int padded, uint32_t *rows) {
    int pairs = pairs_of(depth), whole_depth = depth / LANES * LANES;
    for (int t = 0; t < length; t++, rows += pairs) {
        const uint16_t *own = head_of(from, token + t, head, depth);
        uint16_t *to = (uint16_t *)rows;
        rows[pairs - 1] = 0;
        for (int d = 0; d < whole_depth; d += LANES) *(halves *)(to + d) = *(const halves *)(own + d);
        if (whole_depth < depth) memcpy(to + whole_depth, own + whole_depth, 2 * (depth - whole_depth));
    }
    memset(rows, 0, 4 * (int64_t)pairs * (padded - length));
}

/* Rows of pairs along tokens, `width` long. */
static void weave(operand from, int64_t token, int64_t head, int length, int depth, int width, uint32_t *out) {
    for (int t = 0; t < length; t += 2, out += width) {
        int last = t + 1 == length;
        const uint16_t *low = head_of(from, token + t, head, depth);
        const uint16_t *high = last ? low : head_of(from, token + t + 1, head, depth);
        for (int d = 0; d < depth; d++) out[d] = low[d] | (last ? 0 : (uint32_t)high[d] << 16);
        for (int d = depth; d < width; d++) out[d] = 0;
    }
}

static float inner(const uint32_t *left, const uint32_t *right, int pairs) {
    lanes sum = {0};
    float rest = 0;
    int p = 0;
    for (; p + LANES <= pairs; p += LANES) {
        words a = *(words *)(left + p), b = *(words *)(right + p);
        sum += (lanes)(a << 16) * (lanes)(b << 16);
        sum += (lanes)(a & 0xffff0000u) * (lanes)(b & 0xffff0000u);
    }
    for (; p < pairs; p++) {
        rest += widen((uint16_t)left[p]) * widen((uint16_t)right[p]);
        rest += widen((uint16_t)(left[p] >> 16)) * widen((uint16_t)(right[p] >> 16));
    }
    return total(sum) + rest;
}

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
    int last = padded - LANES;
    integers filled;
    for (int t = 0; t < LANES; t++) filled[t] = -(last + t < length);
    for (int first = 0; first < rows; first += ROWS, scores += ROWS * padded, shares += ROWS) {
        int some = rows - first < ROWS ? rows - first : ROWS;
        float tops[ROWS];
        lanes sums[ROWS];
        for (int r = 0; r < some; r++) {
            float *row = scores + r * padded;
            lanes top = chosen(filled, *(lanes *)(row + last), (lanes){0} + row[last]);
            *(lanes *)(row + last) = top;
            for (int t = 0; t < last; t += LANES) top = greater(top, *(lanes *)(row + t));
            tops[r] = largest(top);
        }
        for (int r = 0; r < some; r++) {
            float *row = scores + r * padded;
            sums[r] = (lanes){0};
            for (int t = 0; t < padded; t += LANES) {
                lanes found = exponential((*(lanes *)(row + t) - tops[r]) * scale);
                if (t == last) found = chosen(filled, found, (lanes){0});
                *(lanes *)(row + t) = found;
                sums[r] += found;
            }
        }
        for (int r = 0; r < some; r++) shares[r] = 1 / total(sums[r]);
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

/* Heads of samples, `first` to before `last`: head h of sample s is s * heads + h. Scratch: 3 operands of the longest
 * sample, its tokens, and two blocks. */
void attend(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth), pairs = pairs_of(depth);
    float survivors = 65536.0f / (65536.0f - of->dropped);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t head = unit % of->heads, start = of->samples[unit / of->heads * 2];
        int length = (int)of->samples[unit / of->heads * 2 + 1], padded = whole(length);
        int step = rows_at_once(of->block, length);
        int64_t size = (int64_t)padded * width;
        uint32_t *query = (uint32_t *)scratch, *key = query + size / 2, *turned = key + size / 2;
        uint32_t *value = turned + size / 2;
        float *found = (float *)(value + size / 2), *shares = found + size, *scores = shares + padded;
        uint16_t *chances = (uint16_t *)(scores + of->block);
        uint32_t stream = stream_of(of, start, head);
        load(of->query, start, head, length, depth, padded, query);
        load(of->key, start, head, length, depth, padded, key);
        turn(key, pairs, padded, turned);
        weave(of->value, start, head, length, depth, width, value);
        for (int top = 0; top < length; top += step) {
            int rows = length - top < step ? length - top : step;
            multiply_pairs(rows, padded, pairs, query + top * pairs, pairs, 1, turned, padded, scores, padded, 0);
            exponentials(rows, length, padded, of->scale, scores, shares + top);
            for (int r = 0; r < rows; r++) {
                for (int t = 0; t < padded; t += LANES) {
                    lanes chance = *(lanes *)(scores + (int64_t)r * padded + t);
                    if (of->dropped) chance *= kept(of, stream, (uint32_t)((top + r) * padded + t));
                    *(halves *)(chances + (int64_t)r * padded + t) = halved(chance);
                }
            }
            multiply_pairs(rows, width, pairs_of(length), (uint32_t *)chances, padded / 2, 1, value, width,
                           found + top * width, width, 0);
        }
        store(found, length, depth, width, survivors, shares,
              of->context + (start * of->heads + head) * depth, of->heads * depth);
    }
}

/* Likewise. Scratch: 8 operands of the longest sample, its tokens, and three blocks. */
void differentiate(const attention *of, int64_t first, int64_t last, float *scratch) {
    int depth = (int)of->depth, width = whole(depth), pairs = pairs_of(depth);
    float survivors = 65536.0f / (65536.0f - of->dropped);
    operand context = {of->context, of->heads * depth, depth};
    for (int64_t unit = first; unit < last; unit++) {
        int64_t head = unit % of->heads, start = of->samples[unit / of->heads * 2];
        int length = (int)of->samples[unit / of->heads * 2 + 1], padded = whole(length);
        int step = rows_at_once(of->block, length);
        int64_t size = (int64_t)padded * width, half = size / 2;
        uint32_t *query = (uint32_t *)scratch, *upstream = query + half, *found = upstream + half, *rows = found + half;
        uint32_t *turned_key = rows + half, *turned_value = turned_key + half, *woven_query = turned_value + half;
        uint32_t *woven_key = woven_query + half, *woven_upstream = woven_key + half;
        float *of_query = (float *)(woven_upstream + half), *of_key = of_query + size, *of_value = of_key + size;
        float *shares = of_value + size, *scores = shares + padded, *gradient = scores + of->block;
        uint16_t *along = (uint16_t *)(gradient + of->block);
        uint32_t *chances = (uint32_t *)scores, *changes = (uint32_t *)gradient;
        uint32_t stream = stream_of(of, start, head);
        load(of->key, start, head, length, depth, padded, rows);
        turn(rows, pairs, padded, turned_key);
        load(of->value, start, head, length, depth, padded, rows);
        turn(rows, pairs, padded, turned_value);
        load(of->query, start, head, length, depth, padded, query);
        load(of->upstream, start, head, length, depth, padded, upstream);
        load(context, start, head, length, depth, padded, found);
        weave(of->query, start, head, length, depth, width, woven_query);
        weave(of->key, start, head, length, depth, width, woven_key);
        weave(of->upstream, start, head, length, depth, width, woven_upstream);
        for (int top = 0; top < length; top += step) {
            int count = length - top < step ? length - top : step, twos = pairs_of(count);
            uint32_t *own = query + top * pairs, *wanted = upstream + top * pairs;
            multiply_pairs(count, padded, pairs, own, pairs, 1, turned_key, padded, scores, padded, 0);
            multiply_pairs(count, padded, pairs, wanted, pairs, 1, turned_value, padded, gradient, padded, 0);
            exponentials(count, length, padded, of->scale, scores, shares);
            for (int r = 0; r < 2 * twos; r += 2) {
                float share[2] = {0, 0}, expected[2] = {0, 0};
                for (int second = 0; second < 2 && r + second < count; second++) {
                    expected[second] = inner(found + (top + r + second) * pairs, wanted + (r + second) * pairs, pairs);
                    share[second] = shares[r + second];
                }
                for (int t = 0; t < padded; t += LANES) {
                    lanes chance[2], change[2];
                    for (int second = 0; second < 2; second++) {
                        int at = (r + second) * padded + t;
                        lanes keep = (lanes){0} + 1.0f, probability = *(lanes *)(scores + at) * share[second];
                        if (of->dropped) keep = survivors * kept(of, stream, (uint32_t)(top * padded + at));
                        chance[second] = probability * keep;
                        change[second] = probability * (*(lanes *)(gradient + at) * keep - expected[second]);
                        if (r + second >= count) chance[second] = change[second] = (lanes){0};
                        *(halves *)(along + at) = halved(change[second]);
                    }
                    /* In place of the first of the two rows that they were made of. */
                    *(words *)(chances + r * padded + t) = paired(chance[0], chance[1]);
                    *(words *)(changes + r * padded + t) = paired(change[0], change[1]);
                }
            }
            multiply_pairs(length, width, twos, chances, 1, 2 * padded, woven_upstream + top / 2 * width, width,
                           of_value, width, top > 0);
            multiply_pairs(length, width, twos, changes, 1, 2 * padded, woven_query + top / 2 * width, width,
                           of_key, width, top > 0);
            multiply_pairs(count, width, pairs_of(length), (uint32_t *)along, padded / 2, 1, woven_key, width,
                           of_query + top * width, width, 0);
        }
        int64_t place = (start * of->heads + head) * depth, token = of->heads * depth;
        store(of_query, length, depth, width, of->scale, 0, of->of_query + place, token);
        store(of_key, length, depth, width, of->scale, 0, of->of_key + place, token);
        store(of_value, length, depth, width, 1, 0, of->of_value + place, token);
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
