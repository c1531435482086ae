/* Linear maps of tokens in bfloat16 on a matrix unit, summed in float32: see tile_linear.py.
 *
 * Left operands are laid out as tiles, some panels of 32 rows at a time that fit into a core's own cache; right ones
 * before, by blocks of 32 columns. While a block is multiplied, the last one is rounded and written.
 */
#include "pairs.h"
#include "team.h"

#define PANEL 32 /* rows of a panel, columns of a block, and what is summed over in a step */

typedef struct {
    const void *data;      /* [rows, columns]; the stride of rows in elements, columns are dense */
    int64_t rows, columns, row, wide; /* wide: float32, else bfloat16 */
} matrix;

typedef struct {
    matrix left;
    const uint32_t *right; /* as laid out by one of the functions below */
    const uint16_t *bias;  /* [outputs], or none */
    void *out;             /* dense: `map` writes bfloat16 [rows, outputs], `gather` float32 [columns, outputs] */
    int64_t outputs;
} product;

typedef struct {
    matrix from;
    uint32_t *to;
} layout;

typedef struct {
    const float *sums;
    const uint16_t *bias;
    uint16_t *out;
    int rows;
} block;

#if defined(MATRIX_UNIT)
typedef __m512i vector;

static vector nothing(void) { return _mm512_setzero_si512(); }

/* 32 numbers of a row as 16 pairs of neighbours; 0 where there is no such row. */
static inline vector pairs_along(const matrix *of, int64_t row, int64_t column) {
    if (row >= of->rows) return nothing();
    int64_t at = row * of->row + column;
    if (!of->wide) return _mm512_loadu_si512((const uint16_t *)of->data + at);
    const float *from = (const float *)of->data + at;
    return (vector)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + LANES), _mm512_loadu_ps(from));
}

/* 32 numbers of two rows as pairs of both: those of the first 16 columns, and of the others. */
static inline void pairs_across(const matrix *of, int64_t row, int64_t column, vector *low, vector *high) {
    static const uint16_t order[2][2 * LANES] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62,
         31, 63}};
    vector first = pairs_along(of, row, column), second = pairs_along(of, row + 1, column);
    *low = _mm512_permutex2var_epi16(first, _mm512_loadu_si512(order[0]), second);
    *high = _mm512_permutex2var_epi16(first, _mm512_loadu_si512(order[1]), second);
}

static inline void write_rows(const product *of, const block *done, int from, int to) {
    lanes low = done->bias ? widened(done->bias) : (lanes){0}, high = done->bias ? widened(done->bias + LANES) : low;
    for (int r = from; r < to && r < done->rows; r++) {
        const float *sums = done->sums + r * PANEL;
        uint16_t *out = done->out + r * of->outputs;
        *(halves *)out = halved(*(const lanes *)sums + low);
        *(halves *)(out + LANES) = halved(*(const lanes *)(sums + LANES) + high);
    }
}

/* A weight [outputs, inputs] for maps of its inputs, [outputs / 32, inputs / 2, 32]; blocks `first` to before `last`. */
void lay_rows(const layout *of, int64_t first, int64_t last, float *scratch) {
    uint32_t rows[SIDE * SIDE];
    (void)scratch;
    for (int64_t number = first; number < last; number++)
        for (int64_t column = 0; column < of->from.columns; column += PANEL)
            for (int half = 0; half < 2; half++) {
                for (int r = 0; r < SIDE; r++)
                    _mm512_storeu_si512(rows + r * SIDE, pairs_along(&of->from, number * PANEL + half * SIDE + r, column));
                uint32_t *to = of->to + (number * of->from.columns + column) * SIDE + half * SIDE;
                turn_tile(rows, SIDE, SIDE, to, PANEL);
            }
}

/* Rows [rows, columns] to be summed over, [columns / 32, rows / 2 in whole panels, 32]: a weight for the gradient of its
 * inputs, and tokens for that of a weight. Blocks `first` to before `last`. */
void lay_columns(const layout *of, int64_t first, int64_t last, float *scratch) {
    (void)scratch;
    int64_t rows = (of->from.rows + PANEL - 1) / PANEL * PANEL;
    for (int64_t row = 0; row < rows; row += 2)
        for (int64_t number = first; number < last; number++) {
            uint32_t *to = of->to + (number * rows + row) * SIDE;
            vector low, high;
            pairs_across(&of->from, row, number * PANEL, &low, &high);
            _mm512_storeu_si512(to, low);
            _mm512_storeu_si512(to + SIDE, high);
        }
}

/* out = left right + bias of panels of rows, `first` to before `last`. Scratch: 16 numbers a column for each of them, and
 * two blocks. */
void map(const product *of, int64_t first, int64_t last, float *scratch) {
    int64_t size = of->left.columns * SIDE, steps = of->left.columns / PANEL;
    uint32_t *panels = (uint32_t *)scratch;
    float *blocks = scratch + (last - first) * size, *sums = blocks;
    int rows_a_step = (int)((PANEL + steps - 1) / steps);
    block done = {0};
    shape_tiles(PANEL, SIDE);
    for (int64_t output = 0; output < of->outputs; output += PANEL)
        for (int64_t number = first; number < last; number++) {
            int64_t row = number * PANEL, left = of->left.rows - row;
            uint32_t *a = panels + (number - first) * size;
            const uint32_t *b = of->right + output * of->left.columns / 2;
            block own = {sums, of->bias ? of->bias + output : 0, (uint16_t *)of->out + row * of->outputs + output,
                         left < PANEL ? (int)left : PANEL};
            if (output == 0)
                for (int r = 0; r < PANEL; r++)
                    for (int64_t step = 0; step < steps; step++)
                        _mm512_storeu_si512(a + (step * PANEL + r) * SIDE, pairs_along(&of->left, row + r, step * PANEL));
            start_sums(sums, PANEL, 1, 1, 0);
            for (int64_t step = 0; step < steps; step++, a += PANEL * SIDE, b += PANEL * SIDE) {
                multiply_tiles(a, SIDE, b, PANEL, 1, 1);
                write_rows(of, &done, (int)step * rows_a_step, (int)(step + 1) * rows_a_step);
            }
            store_sums(sums, PANEL, 1, 1);
            done = own;
            sums = sums == blocks ? blocks + PANEL * PANEL : blocks;
        }
    write_rows(of, &done, 0, PANEL);
    _tile_release();
}

/* out = left^T right, float32, of panels of columns of the left operand. Scratch: 16 numbers a row, in whole panels. */
void gather(const product *of, int64_t first, int64_t last, float *scratch) {
    int64_t steps = (of->left.rows + PANEL - 1) / PANEL;
    uint32_t *panel = (uint32_t *)scratch, rows[2 * SIDE * SIDE];
    shape_tiles(PANEL, SIDE);
    for (int64_t number = first; number < last; number++) {
        for (int64_t step = 0; step < steps; step++)
            for (int half = 0; half < 2; half++) {
                if (half == 0)
                    for (int pair = 0; pair < SIDE; pair++) {
                        vector low, high;
                        pairs_across(&of->left, step * PANEL + 2 * pair, number * PANEL, &low, &high);
                        _mm512_storeu_si512(rows + pair * SIDE, low);
                        _mm512_storeu_si512(rows + (SIDE + pair) * SIDE, high);
                    }
                turn_tile(rows + half * SIDE * SIDE, SIDE, SIDE, panel + (step * 2 + half) * SIDE * SIDE, SIDE);
            }
        for (int64_t output = 0; output < of->outputs; output += PANEL) {
            float *out = (float *)of->out + number * PANEL * of->outputs + output;
            const uint32_t *a = panel, *b = of->right + output * steps * SIDE;
            start_sums(out, of->outputs, 1, 1, 0);
            for (int64_t step = 0; step < steps; step++, a += PANEL * SIDE, b += PANEL * SIDE)
                multiply_tiles(a, SIDE, b, PANEL, 1, 1);
            store_sums(out, of->outputs, 1, 1);
        }
    }
    _tile_release();
}
#else
#define NONE(name, kind) \
    void name(const kind *of, int64_t first, int64_t last, float *scratch) { (void)of, (void)first, (void)last, (void)scratch; }
NONE(lay_rows, layout)
NONE(lay_columns, layout)
NONE(map, product)
NONE(gather, product)
#endif
