/* A step of AdamW for some numbers of a weight, moments in bfloat16: see rounded_adamw.py.
 *
 * One pass over memory. Every operation is rounded on its own, in the order of the operations of PyTorch.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float decay;                 /* factor of the weight */
    float keep_first, add_first; /* beta1 and 1 - beta1 */
    float keep_second, add_second;
    float root;                  /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float rate;                  /* learning rate / (1 - beta1^step) */
    uint32_t start, key;         /* of the random bits */
} settings;

static inline float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t narrow(float value, uint32_t random) { /* up with the probability of what is cut off */
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + random) >> 16);
}

static inline uint32_t mix(uint32_t x, uint32_t key) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x = (x + key) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* `begin` is the place of the first number in its weight. */
void update(const settings *given, float *restrict weight, const float *restrict gradient, uint16_t *restrict first,
            uint16_t *restrict second, int64_t begin, int64_t count) {
    const settings s = *given;
    const uint32_t start = s.start + (uint32_t)begin;
    for (int64_t i = 0; i < count; i++) {
        uint32_t random = mix(start + (uint32_t)i, s.key);
        float g = gradient[i];
        float m = widen(first[i]) * s.keep_first + g * s.add_first;
        float v = widen(second[i]) * s.keep_second + g * s.add_second * g;
        weight[i] = weight[i] * s.decay - m / (sqrtf(v) * s.root + s.epsilon) * s.rate;
        first[i] = narrow(m, random & 0xffff);
        second[i] = narrow(v, random >> 16);
    }
}
