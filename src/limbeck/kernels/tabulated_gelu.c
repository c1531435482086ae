/* A function of numbers in bfloat16 by a table of all its values, and the gradient through it: see tabulated_gelu.py. */
#include "pairs.h"
#include "team.h"

typedef struct {
    const uint16_t *x;
    const float *table;       /* of values; with an upstream gradient, of slopes */
    const uint16_t *upstream; /* or none */
    uint16_t *out;
} lookup;

/* A vector of numbers, each read on its own: gathering takes longer. */
static inline __attribute__((always_inline)) void look_up_lanes(lookup of, int64_t i, int with_upstream) {
    float found[LANES];
    for (int lane = 0; lane < LANES; lane++) found[lane] = of.table[of.x[i + lane]];
    lanes numbers = *(lanes *)found;
    if (with_upstream) numbers *= widened(of.upstream + i);
    *(halves *)(of.out + i) = halved(numbers);
}

/* Numbers `first` to `last` (exclusive). */
void look_up(const void *given, int64_t first, int64_t last, float *scratch) {
    const lookup of = *(const lookup *)given;
    (void)scratch;
    int64_t i = first;
    if (of.upstream)
        for (; i + LANES <= last; i += LANES) look_up_lanes(of, i, 1);
    else
        for (; i + LANES <= last; i += LANES) look_up_lanes(of, i, 0);
    for (; i < last; i++) of.out[i] = narrow(of.table[of.x[i]] * (of.upstream ? widen(of.upstream[i]) : 1));
}
