/* Products of matrices in bfloat16 on a matrix unit, summed in float32: see tile_linear.py.
 *
 * Left operands are laid out as tiles, some panels of 32 rows at a time that fit into a core's own cache; right ones
 * before, by blocks of 32 columns. While a panel is multiplied by a block, the last product is rounded and written.
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
    const uint32_t *right;  /* as laid out by one of the functions below */
    const uint16_t *bias;   /* [outputs], or none */
    void *out;              /* dense, [rows, outputs] in bfloat16; turned: [columns, outputs] in float32 */
    int64_t outputs, turned; /* turned: the left operand's columns are multiplied, and summed over its rows */
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
        __m512 first = (__m512)(*(const lanes *)sums + low), second = (__m512)(*(const lanes *)(sums + LANES) + high);
        _mm512_storeu_si512(done->out + r * of->outputs, (vector)_mm512_cvtne2ps_pbh(second, first));
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

/* A panel of rows as tiles, [columns / 32, 32, 16 pairs]; 0 after the last. */
static void lay_panel(const matrix *of, int64_t number, uint32_t *to) {
    for (int r = 0; r < PANEL; r++)
        for (int64_t column = 0; column < of->columns; column += PANEL)
            _mm512_storeu_si512(to + (column + r) * SIDE, pairs_along(of, number * PANEL + r, column));
}

/* A panel of columns as tiles, [rows / 32, 32, 16 pairs]. */
static void lay_turned(const matrix *of, int64_t number, uint32_t *to) {
    uint32_t rows[2][SIDE * SIDE];
    for (int64_t row = 0; row < of->rows; row += PANEL, to += PANEL * SIDE) {
        for (int pair = 0; pair < SIDE; pair++) {
            vector low, high;
            pairs_across(of, row + 2 * pair, number * PANEL, &low, &high);
            _mm512_storeu_si512(rows[0] + pair * SIDE, low);
            _mm512_storeu_si512(rows[1] + pair * SIDE, high);
        }
        for (int half = 0; half < 2; half++) turn_tile(rows[half], SIDE, SIDE, to + half * SIDE * SIDE, SIDE);
    }
}

/* out = left right + bias, rounded, or of a turned operand left^T right as it is: panels `first` to before `last`.
 * Scratch: 16 numbers for each that is summed over, in whole panels, of each panel; and two blocks. */
void multiply_panels(const product *of, int64_t first, int64_t last, float *scratch) {
    int64_t count = last - first, steps = ((of->turned ? of->left.rows : of->left.columns) + PANEL - 1) / PANEL;
    int64_t size = steps * PANEL * SIDE;
    uint32_t *panels = (uint32_t *)scratch;
    float *blocks = scratch + count * size, *sums = blocks;
    int rows_a_step = (int)((PANEL + steps - 1) / steps);
    block done = {0};
    for (int64_t i = 0; i < count; i++) (of->turned ? lay_turned : lay_panel)(&of->left, first + i, panels + i * size);
    shape_tiles(PANEL, SIDE);
    for (int64_t output = 0; output < of->outputs; output += PANEL)
        for (int64_t i = 0; i < count; i++) {
            const uint32_t *a = panels + i * size, *b = of->right + output / PANEL * size;
            int64_t row = (first + i) * PANEL, left = of->left.rows - row, at = row * of->outputs + output;
            block own = {sums, of->bias ? of->bias + output : 0, (uint16_t *)of->out + at, left < PANEL ? (int)left : PANEL};
            start_sums(sums, PANEL, 1, 1, 0);
            for (int64_t step = 0; step < steps; step++, a += PANEL * SIDE, b += PANEL * SIDE) {
                multiply_tiles(a, SIDE, b, PANEL, 1, 1);
                write_rows(of, &done, (int)step * rows_a_step, (int)(step + 1) * rows_a_step);
            }
            if (of->turned) {
                store_sums((float *)of->out + at, of->outputs, 1, 1);
                continue;
            }
            store_sums(sums, PANEL, 1, 1);
            done = own;
            sums = sums == blocks ? blocks + PANEL * PANEL : blocks;
        }
    write_rows(of, &done, 0, PANEL);
    _tile_release();
}
#else
#define NONE(name, kind) \
    void name(const kind *of, int64_t first, int64_t last, float *scratch) { (void)of, (void)first, (void)last, (void)scratch; }
NONE(lay_rows, layout)
NONE(lay_columns, layout)
NONE(multiply_panels, product)
#endif
