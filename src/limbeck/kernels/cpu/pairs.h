/* Products of bfloat16, two by two: a pair is neighbours along the axis that is summed over, the first in its low half.
 *
 * Processors with AVX512-BF16 multiply and add a vector of pairs at once, at twice the rate of float32; elsewhere pairs
 * are widened; matrix units multiply tiles of them, see tiles.h. Sums are float32, and products of two bfloat16 exact in it.
 */
#ifndef LIMBECK_PAIRS_H
#define LIMBECK_PAIRS_H

#include "tiles.h"
#include "vectors.h"

typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* A vector of sums, to which the products of one pair with the pairs of each lane are added. */
static inline lanes dot(lanes sum, uint32_t a, words b) {
#if defined(__AVX512BF16__)
    return (lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)((words){0} + a), (__m512bh)b);
#else
    sum += widen((uint16_t)a) * (lanes)(b << 16);
    return sum + widen((uint16_t)(a >> 16)) * (lanes)(b & 0xffff0000u);
#endif
}

/* Numbers rounded to bfloat16, to the nearest, ties to even, in the low halves of words. */
static inline words rounded(lanes x) {
    words bits = (words)x;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

/* A vector of numbers rounded to bfloat16. */
static inline halves halved(lanes x) {
#if defined(__AVX512BF16__)
    return (halves)_mm512_cvtneps_pbh((__m512)x);
#else
    return __builtin_convertvector(rounded(x), halves);
#endif
}

/* Pairs of two vectors of numbers rounded to bfloat16. */
static inline words paired(lanes low, lanes high) { return rounded(low) | rounded(high) << 16; }

/* A tile of a product of pairs, of some vectors; arguments as of `multiply_pairs`. */
static inline __attribute__((always_inline)) void tile_pairs(int vectors, int k, const uint32_t *a, int64_t down,
                                                             int64_t along, const uint32_t *b, int64_t b_row, float *c,
                                                             int64_t c_row, int add) {
    lanes sums[TILE][2];
    for (int r = 0; r < TILE; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = add ? *(lanes *)(c + r * c_row + v * LANES) : (lanes){0};
    for (int i = 0; i < k; i++)
        for (int r = 0; r < TILE; r++)
            for (int v = 0; v < vectors; v++)
                sums[r][v] = dot(sums[r][v], a[r * down + i * along], *(const words *)(b + i * b_row + v * LANES));
    for (int r = 0; r < TILE; r++)
        for (int v = 0; v < vectors; v++) *(lanes *)(c + r * c_row + v * LANES) = sums[r][v];
}

/* Rows of pairs along what is summed over, turned: a row for each pair, `padded` long. */
static void turn(const uint32_t *rows, int pairs, int padded, uint32_t *out) {
    for (int p = 0; p < pairs; p++)
        for (int t = 0; t < padded; t++) out[p * padded + t] = rows[t * pairs + p];
}

/* Pairs that hold so many numbers. */
static int pairs_of(int64_t numbers) { return (int)(numbers + 1) / 2; }

/* Rows of a product whose numbers, `padded` in a row, fit into a block: whole tiles, or all. */
static int rows_at_once(int64_t block, int length) {
    int rows = (int)(block / whole(length)) / TILE * TILE;
    return rows < length ? rows : length;
}

/* C[m, n] = A[m, k] B[k, n] of `k` pairs, or added to C. n is whole vectors; A is read at row * down + pair * along. All
 * rows of a last tile are read and written.
 */
static void multiply_pairs(int m, int n, int k, const uint32_t *a, int64_t down, int64_t along, const uint32_t *b,
                           int64_t b_row, float *c, int64_t c_row, int add) {
    if (multiplies_tiles()) {
        multiply_by_tiles(m, n, k, a, down, along, b, b_row, c, c_row, add);
        return;
    }
    for (int column = 0; column < n; column += 2 * LANES)
        for (int row = 0; row < m; row += TILE) {
            const uint32_t *left = a + row * down, *right = b + column;
            float *out = c + row * c_row + column;
            if (n - column > LANES) tile_pairs(2, k, left, down, along, right, b_row, out, c_row, add);
            else tile_pairs(1, k, left, down, along, right, b_row, out, c_row, add);
        }
}

#endif
