/* Dropout by the bits of an SFC64 stream: see dropout.py. */
#include "pairs.h"

#define BLOCK 256 /* elements, whose bits are drawn before they are read: a store must not meet its load */

typedef struct {
    uint64_t a, b, c, counter; /* of the stream */
    int32_t kept_from;         /* 16 bits, as a signed number, below this drop an element */
    float scale;               /* of the elements that stay, in their format */
} draw;

static inline void draw_bits(draw *of, uint64_t *bits, int words) {
    uint64_t a = of->a, b = of->b, c = of->c, counter = of->counter;
    for (int word = 0; word < words; word++) {
        uint64_t found = a + b + counter++;
        a = b ^ (b >> 11);
        b = c + (c << 3);
        c = (c << 24 | c >> 40) + found;
        bits[word] = found;
    }
    of->a = a, of->b = b, of->c = c, of->counter = counter;
}

static inline float factor(const draw *of, const uint64_t *bits, int64_t element) {
    int16_t number = (int16_t)(bits[element / 4] >> element % 4 * 16);
    return number < of->kept_from ? 0 : of->scale;
}

static inline lanes factors(const draw *of, const uint64_t *bits) {
    typedef int16_t numbers __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
    integers kept = __builtin_convertvector(*(const numbers *)bits, integers) >= (integers){0} + of->kept_from;
    return chosen(kept, (lanes){0} + of->scale, (lanes){0});
}

/* Halves are rounded by whole numbers, as by PyTorch: the processor's own instruction makes 0 of subnormal numbers. */
static inline __attribute__((always_inline)) void drop(draw of, const void *from, void *to, int64_t count, int half) {
    uint64_t bits[BLOCK / 4];
    for (int64_t start = 0; start < count; start += BLOCK) {
        const float *x = (const float *)from + start;
        const uint16_t *half_x = (const uint16_t *)from + start;
        float *out = (float *)to + start;
        uint16_t *half_out = (uint16_t *)to + start;
        int64_t size = count - start < BLOCK ? count - start : BLOCK, i = 0;
        draw_bits(&of, bits, BLOCK / 4);
        for (; i + LANES <= size; i += LANES) {
            lanes found = factors(&of, bits + i / 4) * (half ? widened(half_x + i) : *(const lanes *)(x + i));
            if (half) *(halves *)(half_out + i) = __builtin_convertvector(rounded(found), halves);
            else *(lanes *)(out + i) = found;
        }
        for (; i < size; i++) {
            float found = factor(&of, bits, i) * (half ? widen(half_x[i]) : x[i]);
            if (half) half_out[i] = narrow(found);
            else out[i] = found;
        }
    }
}

void drop_float(const draw *given, const float *x, float *out, int64_t count) { drop(*given, x, out, count, 0); }

void drop_half(const draw *given, const uint16_t *x, uint16_t *out, int64_t count) { drop(*given, x, out, count, 1); }
