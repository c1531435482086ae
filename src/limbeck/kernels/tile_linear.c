/* A linear map of tokens in bfloat16 on a matrix unit, summed in float32: see tile_linear.py.
 *
 * Some panels of 32 tokens at a time, laid out as tiles in a core's own cache, by 32 outputs after another. While a
 * block is multiplied, the last one is rounded and written.
 */
#include "pairs.h"
#include "team.h"

#define PANEL 32 /* tokens of a panel, and outputs of a block */

typedef struct {
    const uint16_t *tokens;  /* [count, inputs]; the stride of tokens in elements, inputs are dense */
    const uint32_t *weight;  /* [outputs / 32, inputs / 2, 32], pairs along inputs */
    const uint16_t *bias;    /* [outputs], or none */
    uint16_t *out;           /* [count, outputs], dense */
    int64_t token, count, inputs, outputs;
} linear;

typedef struct {
    const float *sums;
    const uint16_t *bias;
    uint16_t *out;
    int rows;
} block;

#if defined(TILES)
static inline void write_rows(const linear *of, const block *done, int from, int to) {
    lanes low = done->bias ? widened(done->bias) : (lanes){0}, high = done->bias ? widened(done->bias + LANES) : low;
    for (int r = from; r < to && r < done->rows; r++) {
        const float *sums = done->sums + r * PANEL;
        uint16_t *out = done->out + r * of->outputs;
        *(halves *)out = halved(*(const lanes *)sums + low);
        *(halves *)(out + LANES) = halved(*(const lanes *)(sums + LANES) + high);
    }
}

/* Tokens as pairs, [inputs / 32, 32, 16]; 0 behind the last one. */
static void lay_out(const uint16_t *tokens, int64_t token, int rows, int64_t inputs, uint32_t *panel) {
    for (int r = 0; r < PANEL; r++)
        for (int64_t step = 0; step < inputs / PANEL; step++) {
            uint32_t *to = panel + (step * PANEL + r) * SIDE;
            _mm512_store_si512(to, r < rows ? _mm512_loadu_si512(tokens + r * token + step * PANEL) : _mm512_setzero_si512());
        }
}

/* Panels of tokens, `first` to before `last`. Scratch: 16 numbers an input for each of them, and two blocks. */
void map(const linear *of, int64_t first, int64_t last, float *scratch) {
    int64_t panel = of->inputs * SIDE, steps = of->inputs / PANEL;
    uint32_t *tokens = (uint32_t *)scratch;
    float *sums = scratch + (last - first) * panel;
    int rows_a_step = (int)((PANEL + steps - 1) / steps);
    block done = {0};
    shape_tiles(2 * SIDE, SIDE);
    for (int64_t output = 0; output < of->outputs; output += PANEL) {
        for (int64_t number = first; number < last; number++) {
            int64_t token = number * PANEL, left = of->count - token;
            uint32_t *a = tokens + (number - first) * panel;
            const uint32_t *b = of->weight + output * of->inputs / 2;
            block own = {sums, of->bias ? of->bias + output : 0, of->out + token * of->outputs + output,
                         left < PANEL ? (int)left : PANEL};
            if (output == 0) lay_out(of->tokens + token * of->token, of->token, own.rows, of->inputs, a);
            start_sums(sums, PANEL, 1, 1, 0);
            for (int64_t step = 0; step < steps; step++, a += PANEL * SIDE, b += PANEL * SIDE) {
                multiply_tiles(a, SIDE, b, PANEL, 1, 1);
                write_rows(of, &done, (int)step * rows_a_step, (int)(step + 1) * rows_a_step);
            }
            store_sums(sums, PANEL, 1, 1);
            done = own;
            sums += done.sums == scratch + (last - first) * panel ? PANEL * PANEL : -PANEL * PANEL;
        }
    }
    write_rows(of, &done, 0, PANEL);
    _tile_release();
}
#else
void map(const linear *of, int64_t first, int64_t last, float *scratch) {
    (void)of, (void)first, (void)last, (void)scratch;
}
#endif

int multiplies_tiles(void) { return has_tiles(); }
