/* Products of pairs of bfloat16 on a matrix unit (Intel's AMX): tiles of 16 rows of 64 bytes, whose products take as many
 * steps as 16 vectors do and compute 16 times as much. Sums are float32.
 *
 * A block of a product is 32 x 32 numbers, so that each tile read is multiplied twice: sums in tiles 0 to 3, two tiles
 * of the left operand in 4 and 5, two of the right one in 6 and 7.
 */
#ifndef LIMBECK_TILES_H
#define LIMBECK_TILES_H

#include "vectors.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#define MATRIX_UNIT
#define SIDE 16      /* rows of a tile, and its 32-bit numbers along a row */
#define TURNED 128   /* pairs of a left operand that are turned at once; blocks of long samples have more */

/* Compilers do not see that tiles are read from memory: what is written before has to be there. */
#define WRITTEN() __asm__ volatile("" ::: "memory")

/* Whether this process may use tiles: Linux keeps room for them once asked, and asking again is harmless. */
int multiplies_tiles(void) {
    static int known; /* 0: not yet */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        enum { ASK = 0x1023, DATA = 18 };
        answer = syscall(SYS_arch_prctl, ASK, DATA) == 0 ? 1 : -1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > 0;
}

/* Shapes of the tiles for some rows, 1 to 32, and some pairs, 1 to 16, of each product. */
static void shape_tiles(int rows, int pairs) {
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    int first = rows < SIDE ? rows : SIDE, second = rows - first;
    for (int tile = 0; tile < 8; tile++) {
        int left = tile == 4 || tile == 5, right = tile > 5, late = tile == 2 || tile == 3 || tile == 5;
        shapes.rows[tile] = (uint8_t)(right ? pairs : late ? second : first);
        shapes.bytes[tile] = (uint16_t)(shapes.rows[tile] ? left ? 4 * pairs : 4 * SIDE : 0);
    }
    WRITTEN();
    _tile_loadconfig(&shapes);
}

/* Adds the products of two tiles of A by two of B to the sums. `second`: whether there are rows in the second tile of A;
 * `two`: whether there are columns in the second tile of B. */
static inline __attribute__((always_inline)) void multiply_tiles(const uint32_t *a, int64_t a_row, const uint32_t *b,
                                                                 int64_t b_row, int second, int two) {
    _tile_loadd(4, a, 4 * a_row);
    _tile_loadd(6, b, 4 * b_row);
    if (two) _tile_loadd(7, b + SIDE, 4 * b_row);
    if (second) _tile_loadd(5, a + SIDE * a_row, 4 * a_row);
    _tile_dpbf16ps(0, 4, 6);
    if (two) _tile_dpbf16ps(1, 4, 7);
    if (second) _tile_dpbf16ps(2, 5, 6);
    if (second && two) _tile_dpbf16ps(3, 5, 7);
}

/* Starts the sums of a block at 0, or at what C holds. */
static inline __attribute__((always_inline)) void start_sums(const float *c, int64_t c_row, int second, int two, int add) {
    WRITTEN();
    if (!add) {
        _tile_zero(0);
        _tile_zero(1);
        if (second) _tile_zero(2);
        if (second) _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, 4 * c_row);
    if (two) _tile_loadd(1, c + SIDE, 4 * c_row);
    if (second) _tile_loadd(2, c + SIDE * c_row, 4 * c_row);
    if (second && two) _tile_loadd(3, c + SIDE * c_row + SIDE, 4 * c_row);
}

/* Writes the sums of a block to C. */
static inline __attribute__((always_inline)) void store_sums(float *c, int64_t c_row, int second, int two) {
    _tile_stored(0, c, 4 * c_row);
    if (two) _tile_stored(1, c + SIDE, 4 * c_row);
    if (second) _tile_stored(2, c + SIDE * c_row, 4 * c_row);
    if (second && two) _tile_stored(3, c + SIDE * c_row + SIDE, 4 * c_row);
}

/* Columns of 16 words as rows, where the first few rows are read and others are 0. */
static inline void turn_tile(const uint32_t *from, int64_t from_row, int rows, uint32_t *to, int64_t to_row) {
    __m512i x[SIDE], y[SIDE];
    for (int r = 0; r < SIDE; r++) x[r] = r < rows ? _mm512_loadu_si512(from + r * from_row) : _mm512_setzero_si512();
    for (int r = 0; r < SIDE; r += 2) {
        y[r] = _mm512_unpacklo_epi32(x[r], x[r + 1]);
        y[r + 1] = _mm512_unpackhi_epi32(x[r], x[r + 1]);
    }
    for (int r = 0; r < SIDE; r += 4)
        for (int i = 0; i < 2; i++) {
            x[r + 2 * i] = _mm512_unpacklo_epi64(y[r + i], y[r + i + 2]);
            x[r + 2 * i + 1] = _mm512_unpackhi_epi64(y[r + i], y[r + i + 2]);
        }
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < SIDE; i += 8) {
            y[i + r] = _mm512_shuffle_i32x4(x[i + r], x[i + r + 4], 0x88);
            y[i + r + 4] = _mm512_shuffle_i32x4(x[i + r], x[i + r + 4], 0xdd);
        }
    for (int r = 0; r < 8; r++) {
        x[r] = _mm512_shuffle_i32x4(y[r], y[r + 8], 0x88);
        x[r + 8] = _mm512_shuffle_i32x4(y[r], y[r + 8], 0xdd);
    }
    for (int r = 0; r < SIDE; r++) _mm512_storeu_si512(to + r * to_row, x[r]);
}

/* As `multiply_pairs`. Products take as many pairs each as make the last one whole, or nearly so. A left operand whose
 * rows lie along memory is turned first, and read in whole vectors of them. */
static void multiply_by_tiles(int m, int n, int k, const uint32_t *a, int64_t down, int64_t along, const uint32_t *b,
                              int64_t b_row, float *c, int64_t c_row, int add) {
    uint32_t turned[2 * SIDE * TURNED], last_left[2 * SIDE * SIDE], last_right[2 * SIDE * SIDE];
    /* More pairs than are turned at once come in parts, each added to the one before. */
    for (; along != 1 && k > TURNED; k -= TURNED, a += TURNED * along, b += TURNED * b_row, add = 1)
        multiply_by_tiles(m, n, TURNED, a, down, along, b, b_row, c, c_row, add);
    int steps = (k + SIDE - 1) / SIDE, pairs = (k + steps - 1) / steps, whole_steps = k / pairs, rest = k % pairs;
    for (int row = 0, shaped = 0; row < m; row += 2 * SIDE) {
        int rows = m - row < 2 * SIDE ? m - row : 2 * SIDE, second = rows > SIDE;
        const uint32_t *left = a + row * down;
        int64_t left_row = down;
        if (shaped != rows) shape_tiles(shaped = rows, pairs);
        if (along != 1) {
            /* Turn the rows of this block, whose pairs do not lie side by side. */
            for (int i = 0; i < k; i += SIDE)
                for (int r = 0; r < rows; r += SIDE)
                    turn_tile(left + r + i * along, along, k - i, turned + r * TURNED + i, TURNED);
            left = turned, left_row = TURNED;
        }
        /* The pairs of the last, shorter product, filled up with 0. */
        for (int r = 0; rest && r < rows; r++)
            for (int i = 0; i < SIDE; i++)
                last_left[r * SIDE + i] = i < rest ? left[r * left_row + whole_steps * pairs + i] : 0;
        for (int column = 0; column < n; column += 2 * SIDE) {
            const uint32_t *right = b + column;
            float *out = c + row * c_row + column;
            int two = n - column > SIDE, width = two ? 2 * SIDE : SIDE;
            start_sums(out, c_row, second, two, add);
            for (int step = 0; step < whole_steps; step++, right += pairs * b_row)
                multiply_tiles(left + step * pairs, left_row, right, b_row, second, two);
            if (rest) {
                for (int i = 0; i < pairs; i++) {
                    if (i < rest) memcpy(last_right + i * 2 * SIDE, right + i * b_row, 4 * width);
                    else memset(last_right + i * 2 * SIDE, 0, 4 * width);
                }
                WRITTEN();
                multiply_tiles(last_left, SIDE, last_right, 2 * SIDE, second, two);
            }
            store_sums(out, c_row, second, two);
        }
    }
    _tile_release();
}

#else
int multiplies_tiles(void) { return 0; }
static void multiply_by_tiles(int m, int n, int k, const uint32_t *a, int64_t down, int64_t along, const uint32_t *b,
                              int64_t b_row, float *c, int64_t c_row, int add) {
    (void)m, (void)n, (void)k, (void)a, (void)down, (void)along, (void)b, (void)b_row, (void)c, (void)c_row, (void)add;
}
#endif

#endif
